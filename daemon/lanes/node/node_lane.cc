#include "daemon/lanes/node/node_lane.h"

#include <algorithm>
#include <chrono>

namespace ringd {
namespace {

// How often ranks that need no ringd are looked at, while they have something in flight, and while
// they have not: what bounds how exactly ringd knows since when something waits.
constexpr std::chrono::milliseconds kLookInterval{100};
constexpr std::chrono::milliseconds kRestingLookInterval{500};

}  // namespace

std::optional<Clock::time_point> NodeLane::NextLook(Clock::time_point now) const {
  return now + (group_->AnyInFlight() ? kLookInterval : kRestingLookInterval);
}

bool NodeLane::HasInFlight(int member) const noexcept {
  const MemberCounters counters = group_->Counters(member);
  return counters.submitted != counters.ended;
}

std::optional<Clock::time_point> NodeLane::WaitingSince(Clock::time_point before) const {
  const std::optional<Clock::time_point> since = group_->WaitingSince();
  return since.has_value() && *since > before ? std::nullopt : since;
}

void NodeLane::AddWaiting(Clock::time_point before, std::size_t most, bool& all,
                          std::vector<WaitingSubmission>& waiting) const {
  std::vector<std::size_t> counts(member_count_);
  for (LocalWait& wait : group_->Waiting(before, Clock::now(), all)) {
    if (counts[static_cast<std::size_t>(wait.member)]++ >= most) {
      all = false;
      continue;
    }
    WaitingSubmission& entry = waiting.emplace_back();
    entry.member = wait.member;
    entry.name = std::move(wait.tensor);
    const TensorMeta* const meta = events_.FindMeta(wait.meta_id);
    entry.bytes = meta == nullptr ? wait.ordered_bytes : ByteCount(*meta);
    entry.since = wait.since;
    entry.state = wait.arrived ? TensorState::kRunning : TensorState::kIdle;
    entry.absent_members = std::move(wait.absent);
  }
}

std::vector<int> NodeLane::MembersWithout(const std::string& tensor,
                                          std::vector<int> absent) const {
  const bool on_gpus = absent.size() < member_count_;
  return on_gpus ? absent : group_->MembersWithout(tensor);
}

bool NodeLane::AllHaveSubmitted(const std::string& tensor, const std::vector<int>& absent) const {
  return absent.empty() || (absent.size() == member_count_ && group_->HasArrived(tensor));
}

Lane::Carried NodeLane::CarriedByRanks() const noexcept {
  Carried carried;
  for (std::size_t m = 0; m < member_count_; ++m) {
    const MemberCounters member = group_->Counters(static_cast<int>(m));
    carried.tensors += member.ended - member.failed;
    carried.operations = std::max(carried.operations, member.ended - member.failed);
    carried.payload_bytes = std::max(carried.payload_bytes, member.bytes);
  }
  return carried;
}

void NodeLane::AddCounters(int member, MemberCounters& counters) const noexcept {
  const MemberCounters local = group_->Counters(member);
  counters.submitted += local.submitted;
  counters.ended += local.ended;
  counters.failed += local.failed;
  counters.bytes += local.bytes;
}

}  // namespace ringd
