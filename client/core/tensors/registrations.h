// The tensors that this context has described to ringd.
#ifndef RINGD_CLIENT_CORE_TENSORS_REGISTRATIONS_H_
#define RINGD_CLIENT_CORE_TENSORS_REGISTRATIONS_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "client/core/tensors/submission_count.h"
#include "client/core/tensors/tensor_description.h"
#include "client/ringd.h"
#include "proto/base/cache_line.h"
#include "proto/base/mutex.h"

namespace ringd::client {

class Lane;
class OrderedDescriptions;

// Which way the operations of a communicator go.
struct LaneUse {
  Lane* way = nullptr;
  ringd_operation tag = 0;         // added to the numbers of its operations
  std::uint32_t communicator = 0;  // ringd's number
};

// What each submission reads comes first.
//
// Ownership: Registrations. Immutable after creation but for the number and submissions.
struct alignas(kCacheLineBytes) Registration {
  std::atomic<ringd_registration> number{0};  // 0: it has been removed
  // Copied out of the description.
  std::uint32_t element_bytes = 1;
  std::uint64_t bytes = 0;
  std::uint64_t element_count = 0;
  LaneUse lane;
  RegisteredNumbers numbers;
  bool sends = true;       // this rank's source is read
  bool receives = true;    // this rank's destination is written
  bool is_scaled = false;  // it is matched by order, and its scales go with each submission
  // Of jobs that have a rank exchange. All descriptions of one name share it: it must not begin
  // again when one of them is removed and comes again, since at other ranks it may not.
  std::shared_ptr<SubmissionCount> submissions = std::make_shared<SubmissionCount>();
  // Whose it is, if it describes an operation that is matched by order, and goes with that.
  OrderedDescriptions* ordered = nullptr;
  // The description's, in the rank exchange; the same at all ranks.
  std::uint64_t signature = 0;
  TensorDescription description;
};

// Numbers registrations 1, 2, ... in the order in which they became known, and finds them by number
// without a lock, by description with one. A number is a place and how often that has been used
// before.
//
// Thread safety: any thread may call anything, but Remove only for a registration that nobody uses.
// Invariants: a number stands for one description; once removed, for none, until its place has been
//   used 32,768 times. What was removed stays in memory until kKeptPlaces others have been removed,
//   so that a caller who breaks the rule gets an error, as a rule, and nothing worse.
class Registrations {
 public:
  Registrations() = default;
  Registrations(const Registrations&) = delete;
  Registrations& operator=(const Registrations&) = delete;
  ~Registrations();

  // The number of an equal description, or 0.
  ringd_registration FindEqual(const std::string& key) const;

  // Of a job that has a rank exchange, before the first is added: descriptions of one name have one
  // count of submissions, which stays with the name.
  void CountByName() {
    MutexLock lock(mutex_);
    counts_by_name_ = true;
  }

  // Adds what ringd has accepted as `numbers`; `rank` is this process's. If an equal description
  // has been added meanwhile, gives its number. 0: there are no numbers left.
  ringd_registration Add(TensorDescription description, const RegisteredNumbers& numbers,
                         std::int32_t rank, const LaneUse& lane = {});
  // The numbers of all that belong to a communicator other than that of all ranks.
  std::vector<ringd_registration> OfCommunicator(std::uint32_t communicator) const;

  // Null if there is no such number.
  Registration* Find(ringd_registration number) noexcept;

  // Forgets it. No effect if there is no such number.
  void Remove(ringd_registration number);

  // How many there are.
  std::size_t count() const {
    MutexLock lock(mutex_);
    return by_key_.size();
  }

  static constexpr std::size_t kKeptPlaces = 1024;

 private:
  // Chunk k holds kFirstChunk << k entries, so that nothing ever moves and a number's place is
  // arithmetic.
  static constexpr std::uint32_t kFirstChunkBits = 6;
  static constexpr std::uint32_t kChunkCount = 11;
  static constexpr std::uint32_t kPlaceBits = 17;  // of a number; more than the chunks have entries
  static constexpr std::uint32_t kPlaceMask = (1U << kPlaceBits) - 1;
  struct Place {
    std::uint32_t chunk;
    std::uint32_t index;
  };
  static Place PlaceOf(std::uint32_t position) noexcept;
  std::atomic<Registration*>& EntryOf(std::uint32_t position) noexcept {
    const Place place = PlaceOf(position);
    return chunks_[place.chunk].load(std::memory_order_relaxed)[place.index];
  }
  // A number that is free, with room for its registration; 0: there is none.
  ringd_registration TakeNumber() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  std::unordered_map<std::string, ringd_registration> by_key_ ABSL_GUARDED_BY(mutex_);
  bool counts_by_name_ ABSL_GUARDED_BY(mutex_) = false;
  // Then: one for each name that has come so far.
  std::unordered_map<std::string, std::shared_ptr<SubmissionCount>> submissions_
      ABSL_GUARDED_BY(mutex_);
  std::deque<ringd_registration> removed_ ABSL_GUARDED_BY(mutex_);  // the longest ago first
  // Written under mutex_; release of count_ pairs with the acquire in Find: who sees a place in
  // range sees its chunk. The same holds for an entry and its registration, which it owns.
  std::atomic<std::uint32_t> count_{0};
  std::array<std::atomic<std::atomic<Registration*>*>, kChunkCount> chunks_{};
};

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_TENSORS_REGISTRATIONS_H_
