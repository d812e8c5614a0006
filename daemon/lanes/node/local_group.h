// The ranks of a one-node job, who combine their tensors themselves: ringd lays out their memory
// and looks on.
#ifndef RINGD_DAEMON_LANES_NODE_LOCAL_GROUP_H_
#define RINGD_DAEMON_LANES_NODE_LOCAL_GROUP_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/lanes/lane.h"
#include "daemon/lanes/node/local_waits.h"
#include "daemon/sessions/session.h"
#include "proto/base/clock.h"
#include "proto/base/memory_mapping.h"
#include "proto/base/unique_fd.h"
#include "proto/shm/job_segment.h"
#include "proto/shm/ordered_operation.h"
#include "proto/shm/tensor_numbers.h"

namespace ringd {

// A submission that has not ended because of another member.
struct LocalWait {
  int member = 0;
  std::string tensor;
  std::uint32_t meta_id = 0;        // the member's word: check it
  std::uint64_t ordered_bytes = 0;  // of an operation that is matched by order; the member's word
  Clock::time_point since;
  bool arrived = false;     // all have submitted it; `absent` then holds who reduces a part of it
  std::vector<int> absent;  // members for whom it waits
};

// proto/shm/job_segment.h has the protocol; this class only reads. The members do not wake ringd,
// so what it knows of times is as exact as the calls of Look are frequent.
//
// Thread safety: none; the progress thread owns it.
// Ownership: owns the segment; the members keep theirs mapped as long as they like.
// Trust: everything read here was written by clients. It is shown, and used to tell who waits for
//   whom; nothing is indexed by it.
class LocalGroup {
 public:
  // Makes the segment and hands it, and each other's arenas, to the members. `ranks` by member;
  // `communicator` is its number within the job. `by_order`: its operations are matched by order.
  static absl::StatusOr<std::unique_ptr<LocalGroup>> Create(
      const std::string& job_id, std::span<const std::int32_t> ranks,
      std::span<const std::shared_ptr<Session>> members, std::uint32_t communicator = 0,
      bool by_order = false);

  // One more registration holds the number of a tensor's name in the segment.
  //   kResourceExhausted: there are no numbers left.
  absl::StatusOr<std::uint32_t> Hold(const std::string& name);
  void Release(std::uint32_t tensor) { numbers_.Release(tensor); }
  std::uint64_t name_bytes() const noexcept { return numbers_.name_bytes(); }
  // How many names there are, or places of operations; their numbers are below that.
  std::uint32_t tensor_count() const noexcept {
    return by_order_ ? kOrderedPlaces : numbers_.count();
  }
  // Nothing if there is no such number.
  std::optional<std::string> NameOf(std::uint32_t tensor) const { return numbers_.NameOf(tensor); }

  // Notes since when submissions wait. Reads a bounded amount (LocalWaits).
  void Look(Clock::time_point now) { waits_.Look(now, tensor_count()); }

  // True if some submission has not ended.
  bool AnyInFlight() const noexcept;
  MemberCounters Counters(int member) const noexcept;
  // Whether the members read each other's ordinary memory, and if not, why, in words.
  std::string OrdinaryMemory() const;

  // Since when the longest wait for a member lasts, as the last looks have found. At once.
  std::optional<Clock::time_point> WaitingSince() const noexcept {
    return AnyInFlight() ? waits_.WaitingSince() : std::nullopt;
  }
  // What has waited since `before` or longer for a member, the oldest first. Reads a bounded
  // amount; `all` becomes false if there may be more.
  std::vector<LocalWait> Waiting(Clock::time_point before, Clock::time_point now, bool& all);
  std::vector<LocalWait> Waiting(Clock::time_point before, Clock::time_point now) {
    bool all = true;
    return Waiting(before, now, all);
  }
  // The members for whom the tensor's oldest occurrence in flight waits; all, if nobody has
  // submitted it.
  std::vector<int> MembersWithout(const std::string& tensor);
  // Whether all members have submitted that occurrence.
  bool HasArrived(const std::string& tensor);
  // What has been read of the members' words and slots so far.
  const LocalWaits::Work& work() const noexcept { return waits_.work(); }

 private:
  LocalGroup(MemoryMapping mapping, UniqueFd fd, std::vector<std::uint32_t> capacities,
             bool by_order)
      : by_order_(by_order),
        segment_(std::move(mapping)),
        view_(segment_.data(), static_cast<std::uint32_t>(capacities.size())),
        waits_(view_, std::move(fd), std::move(capacities)) {}

  // Where the tensor of that name, or number, is in the segment.
  std::optional<std::uint32_t> PlaceOf(const std::string& tensor) const;

  const bool by_order_;
  MemoryMapping segment_;  // what stands before the tensors
  JobSegmentView view_;
  TensorNumbers numbers_{kMaxLocalTensors};
  LocalWaits waits_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_LANES_NODE_LOCAL_GROUP_H_
