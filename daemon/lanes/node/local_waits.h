// Since when the submissions of a one-node job wait, and for whom: what ringd finds out by looking.
#ifndef RINGD_DAEMON_LANES_NODE_LOCAL_WAITS_H_
#define RINGD_DAEMON_LANES_NODE_LOCAL_WAITS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "proto/base/cache_line.h"
#include "proto/base/clock.h"
#include "proto/base/unique_fd.h"
#include "proto/shm/in_flight_index.h"
#include "proto/shm/job_segment.h"

namespace ringd {

// For whom one tensor's occurrence waits.
struct LocalVerdict {
  bool arrived = false;     // all have submitted it
  std::vector<int> absent;  // members who have not; if it has arrived, who reduces a part of it
  std::vector<std::uint32_t> meta_ids;        // by member; their word
  std::vector<std::uint64_t> element_counts;  // likewise; of operations that are matched by order
};

// Goes through what the members say they have in flight (proto/shm/in_flight_index.h), again and
// again: a pass may take several calls of Look, each of which reads a bounded amount. A tensor that
// has not moved since the pass before is examined: copied out of the segment, which the looks do
// not map, so that reading a hole leaves it a hole.
//
// Thread safety: none; the progress thread owns it.
// Ownership: owns the descriptor; borrows the mapped part of the segment.
// Trust: everything read was written by clients. A member's places are bounded by what it may have
//   in flight, tensors by the names that there are; the rest is only shown.
class LocalWaits {
 public:
  // `segment` is mapped up to TensorsOffset; `fd` is all of it. `capacities`: by member, the most
  // that it may have in flight.
  LocalWaits(const JobSegmentView& segment, UniqueFd fd, std::vector<std::uint32_t> capacities);

  // A piece of a pass, or nothing if it is too early for the next one. `tensor_count`: the numbers
  // there are.
  void Look(Clock::time_point now, std::uint32_t tensor_count);

  // Since when the submission waits that has waited longest for a member, as the last whole pass
  // has found; nothing if none does. At once.
  std::optional<Clock::time_point> WaitingSince() const noexcept { return waiting_since_; }

  struct Wait {
    std::uint32_t member = 0;
    InFlightTensor tensor;
    Clock::time_point since;
    LocalVerdict verdict;  // with somebody absent
  };
  // What has waited since `before` or longer and waits for a member, the oldest first. Reads about
  // kBytesPerLook of words, and as much of tensors; `all` becomes false if that was not enough, and
  // the rest is left out: of each member what is not in the first of its places, and the newest.
  std::vector<Wait> Waiting(Clock::time_point before, Clock::time_point now,
                            std::uint32_t tensor_count, bool& all);

  // Of the tensor's oldest occurrence in flight; nothing, if nobody has submitted it.
  // Requirement: the tensor has a number.
  std::optional<LocalVerdict> OfOldest(std::uint32_t tensor);

  // What has been read so far: what the engine's time goes to.
  struct Work {
    std::uint64_t words = 0;    // of the members' places
    std::uint64_t tensors = 0;  // copied, with all their slots
  };
  const Work& work() const noexcept { return work_; }

  // One call of Look reads about so many bytes; a pass over what honest jobs have in flight is over
  // within a second.
  static constexpr std::size_t kBytesPerLook = std::size_t{4} << 20;

 private:
  struct Seen {
    std::uint64_t word = 0;  // 0: nothing in flight at this place
    Clock::time_point since;
    bool waits = false;  // for a member, when it was examined last
  };

  std::uint64_t Progress() const noexcept;
  void BeginPass(Clock::time_point now);
  void EndPass();
  // Returns the bytes read.
  std::size_t LookAt(std::uint32_t member, std::uint32_t place, Clock::time_point now,
                     std::uint32_t tensor_count);
  std::uint32_t PlacesOf(std::uint32_t member) const noexcept;
  // What has been in flight since `before` or longer, the oldest first, without verdicts. As
  // Waiting.
  std::vector<Wait> InFlight(Clock::time_point before, Clock::time_point now,
                             std::uint32_t tensor_count, bool& all);
  // A copy, which the next call replaces.
  TensorView Read(std::uint32_t tensor);
  std::size_t TensorBytes() const noexcept { return TensorView::Bytes(segment_.member_count()); }
  LocalVerdict Examine(const InFlightTensor& tensor);
  LocalVerdict Judge(const TensorView& copy, const InFlightTensor& tensor) const;

  const JobSegmentView segment_;
  const UniqueFd fd_;
  const std::vector<std::uint32_t> capacities_;
  struct alignas(kCacheLineBytes) Line {
    std::byte bytes[kCacheLineBytes];
  };
  std::vector<Line> copy_;
  std::vector<std::vector<Seen>> seen_;  // by member and place

  bool in_pass_ = false;
  std::uint32_t next_member_ = 0;
  std::uint32_t next_place_ = 0;
  std::unordered_map<std::uint64_t, bool> waits_;  // of this pass, by word
  Clock::time_point pass_begun_;
  Clock::time_point pass_oldest_;
  std::optional<Clock::time_point> pass_waiting_since_;

  // Of the last whole pass. Whatever is in flight has been so since then or later.
  Clock::time_point oldest_ = Clock::time_point::min();
  std::optional<Clock::time_point> waiting_since_;
  std::uint64_t last_progress_ = 0;
  Work work_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_LANES_NODE_LOCAL_WAITS_H_
