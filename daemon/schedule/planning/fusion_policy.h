// Who decides which tensors travel together.
#ifndef RINGD_DAEMON_SCHEDULE_PLANNING_FUSION_POLICY_H_
#define RINGD_DAEMON_SCHEDULE_PLANNING_FUSION_POLICY_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "daemon/schedule/planning/bucket_planner.h"

namespace ringd {

struct FusionPolicy {
  enum class Kind : std::uint8_t {
    kLearned,  // the cost model, again when measurements change
    kPinned,   // the cost model, or the plan kept of an earlier job; then it stays
    kFixed,    // buckets filled up to `bytes` in the order of readiness
    kOff,      // every tensor alone
  };
  Kind kind = Kind::kLearned;
  std::size_t bytes = 0;  // kFixed only

  // True if the cost model decides.
  bool IsPlanned() const noexcept { return kind == Kind::kLearned || kind == Kind::kPinned; }
  bool MayReplan() const noexcept { return kind == Kind::kLearned; }
  // Bytes up to which tensors that become ready together are fused while they are negotiated.
  // `most`: what a bucket may hold at all.
  std::size_t NegotiatedThreshold(std::size_t most) const noexcept {
    return kind == Kind::kOff ? 0 : kind == Kind::kFixed ? bytes : most;
  }
  // What a learned bucket of tensors on GPUs may hold. `usual`: where the cost model decides on
  // others.
  std::size_t LaunchedBytes(std::size_t most, std::size_t usual) const noexcept {
    return IsPlanned() ? std::min(most, usual) : NegotiatedThreshold(most);
  }
  std::unique_ptr<const BucketPlanner> MakePlanner(std::size_t most) const {
    if (kind == Kind::kOff) return std::make_unique<ThresholdPlanner>(0);
    if (kind == Kind::kFixed) return std::make_unique<ThresholdPlanner>(bytes);
    return std::make_unique<CostModelPlanner>(most);
  }

  friend bool operator==(const FusionPolicy&, const FusionPolicy&) = default;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SCHEDULE_PLANNING_FUSION_POLICY_H_
