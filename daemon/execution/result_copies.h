// The results of an all-reduce on their way to the local ranks, behind the ring.
#ifndef RINGD_DAEMON_EXECUTION_RESULT_COPIES_H_
#define RINGD_DAEMON_EXECUTION_RESULT_COPIES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "daemon/execution/bucket.h"
#include "daemon/execution/reducers.h"
#include "daemon/execution/staged_tensors.h"
#include "proto/base/cache_line.h"

namespace ringd {

// What is final of the bucket lies in one place, of which the ring may be sending it on: the engine
// adds it here and goes on. A part is a range's copy to a few of the ranks; parts are taken by
// reducers and by the engine when it has nothing else to do, in the order in which they were added:
//
//     finished <= claimed <= added        three counters: the engine adds, anybody claims and
//                                         finishes
//
// So nobody writes a part of a destination but the one who claimed it, and the engine never waits:
// what nobody has begun it does itself, and for what a reducer is in the middle of it is woken.
//
// Thread safety: Add, CopyOne, Done, Close and Quiet on the progress thread; the rest on any.
// Ownership: uses `memory`, `staged` and `buffer` in Finish and CopyOne and nowhere else: they must
//   live until Done() has been true after the last Add(), or Close() has been called and Quiet() is
//   true. Then claims may still be tried, and fail.
// Invariant: nothing is written that was not claimed before Close(). Nothing is allocated after
//   construction.
class ResultCopies final : public ReducerWork {
 public:
  // Ranks that one part copies to: whose results one core writes in about 50 us, for a chunk of
  // 128 KiB.
  static constexpr std::size_t kMembersPerPart = 4;

  // Tells `staged`, unless null, of each part that is where it belongs.
  ResultCopies(const BucketMemory& memory, StagedTensors* staged, const std::byte* buffer,
               std::size_t max_ranges, Reducers& reducers);

  // False after Close(), and when `max_ranges` have been added.
  bool HasRoom() const noexcept;
  // The range's result lies at `place` and stays there. Requirement: HasRoom().
  void Add(std::size_t begin, std::size_t end, ResultPlace place) noexcept;
  // Copies a part that nobody has begun; false if there is none.
  bool CopyOne() noexcept;
  // All that was added is where it belongs. If not, there is something for CopyOne(), or the engine
  // is woken when it may have changed.
  bool Done() noexcept;
  // Nothing is claimed any more.
  void Close() noexcept;
  // Nobody copies, nor will without Add(). After Close(): if not, the engine is woken when that
  // changes.
  bool Quiet() const noexcept;

  std::optional<std::size_t> Claim() noexcept override;
  void Finish(std::size_t part) noexcept override;
  bool MayGrow() const noexcept override;

 private:
  struct Range {
    std::size_t begin = 0;
    std::size_t end = 0;
    ResultPlace place = ResultPlace::kBuffer;
  };

  void Copy(std::size_t part) const noexcept;

  const BucketMemory& memory_;
  StagedTensors* const staged_;
  const std::byte* const buffer_;
  Reducers& reducers_;
  const std::size_t parts_per_range_;
  const std::size_t members_per_part_;
  const std::size_t max_ranges_;
  const std::unique_ptr<Range[]> ranges_;  // each is written before its parts are counted in added_
  std::uint64_t claimed_before_close_ = 0;
  bool closed_ = false;

  // Parts. Apart, since who claims and finishes would else slow down who adds.
  alignas(kCacheLineBytes) std::atomic<std::uint64_t> added_{0};
  alignas(kCacheLineBytes) std::atomic<std::uint64_t> claimed_{0};   // kClosed after Close()
  alignas(kCacheLineBytes) std::atomic<std::uint64_t> finished_{0};  // and kAwaited
};

}  // namespace ringd

#endif  // RINGD_DAEMON_EXECUTION_RESULT_COPIES_H_
