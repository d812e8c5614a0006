// The lane of ranks that are all on this node: they combine their tensors themselves, and this node
// looks on.
#ifndef RINGD_DAEMON_LANES_NODE_NODE_LANE_H_
#define RINGD_DAEMON_LANES_NODE_NODE_LANE_H_

#include <cstddef>
#include <memory>
#include <utility>

#include "daemon/lanes/lane.h"
#include "daemon/lanes/node/local_group.h"

namespace ringd {

// Thread safety: none; the progress thread owns it.
// Ownership: of the group; borrows `events`.
class NodeLane final : public Lane {
 public:
  NodeLane(std::unique_ptr<LocalGroup> group, std::size_t member_count, const LaneEvents& events)
      : group_(std::move(group)), member_count_(member_count), events_(events) {}

  bool CombinesLocally() const noexcept override { return true; }
  absl::StatusOr<std::uint32_t> HoldName(const std::string& name) override {
    return group_->Hold(name);
  }
  void ReleaseName(std::uint32_t tensor) override { group_->Release(tensor); }
  std::uint32_t tensor_count() const noexcept override { return group_->tensor_count(); }
  std::uint64_t name_bytes() const noexcept override { return group_->name_bytes(); }
  std::optional<std::string> NameOf(std::uint32_t tensor) const override {
    return group_->NameOf(tensor);
  }

  void Look(Clock::time_point now) override { group_->Look(now); }
  std::optional<Clock::time_point> NextLook(Clock::time_point now) const override;
  bool RanksRest() const noexcept override { return !group_->AnyInFlight(); }
  bool HasInFlight(int member) const noexcept override;

  std::optional<Clock::time_point> WaitingSince(Clock::time_point before) const override;
  void AddWaiting(Clock::time_point before, std::size_t most, bool& all,
                  std::vector<WaitingSubmission>& waiting) const override;
  // Who lacks the tensor here has it in host memory, or not at all; if nobody has it here, all have
  // it there.
  bool AllHaveSubmitted(const std::string& tensor, const std::vector<int>& absent) const override;
  std::vector<int> MembersWithout(const std::string& tensor,
                                  std::vector<int> absent) const override;

  Carried CarriedByRanks() const noexcept override;
  void AddCounters(int member, MemberCounters& counters) const noexcept override;
  std::string OrdinaryMemory() const override { return group_->OrdinaryMemory(); }

 private:
  const std::unique_ptr<LocalGroup> group_;
  const std::size_t member_count_;
  const LaneEvents& events_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_LANES_NODE_NODE_LANE_H_
