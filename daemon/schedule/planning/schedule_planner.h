// Turns observed tensors into buckets, and remembers which tensors must not share one.
//
// Thread safety: none.
#ifndef RINGD_DAEMON_SCHEDULE_PLANNING_SCHEDULE_PLANNER_H_
#define RINGD_DAEMON_SCHEDULE_PLANNING_SCHEDULE_PLANNER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "daemon/schedule/planning/bucket_planner.h"
#include "daemon/schedule/planning/period_learner.h"

namespace ringd {

// What the learned plan and its alternatives cost by the link model.
struct PlanComparison {
  std::size_t tensors = 0;
  std::size_t bytes = 0;
  std::chrono::nanoseconds compute{0};  // when the last tensor becomes ready
  std::chrono::nanoseconds learned{0};  // when the last bucket is done
  std::chrono::nanoseconds fixed_64mib{0};
  std::chrono::nanoseconds per_tensor{0};
};

struct PlannedBucket {
  std::vector<LearnedTensor> tensors;
  std::chrono::nanoseconds expected_fill{0};
};

class SchedulePlanner {
 public:
  // `launched`: for tensors that need a launch, which don't take the link.
  SchedulePlanner(std::unique_ptr<const BucketPlanner> planner,
                  std::unique_ptr<const BucketPlanner> launched, const LinkModel& link);

  const LinkModel& link() const { return link_; }
  void SetLink(const LinkModel& link) { link_ = link; }

  // At most `max_buckets` buckets for tensors given in any order. If dependencies between tensors
  // need more buckets than that, the tensors that are ready last are in none.
  std::vector<PlannedBucket> Plan(std::vector<LearnedTensor> tensors,
                                  std::size_t max_buckets) const;
  // One bucket of just these tensors.
  static PlannedBucket AsOneBucket(std::vector<LearnedTensor> tensors);

  // From now on the named tensors are not planned together with those that they could join until
  // now. A guess is taken back by ForgetGuesses.
  void Separate(const std::set<std::string>& names, bool is_guess);
  void ForgetGuesses();
  void Forget(const std::string& name) { group_.erase(name); }

  // What the link model says of these buckets: of each, of the whole, and beside other plans.
  std::vector<BucketTimes> Predict(const std::vector<PlannedBucket>& buckets) const;
  std::chrono::nanoseconds StepTime(const std::vector<PlannedBucket>& buckets) const;
  PlanComparison Compare(const std::vector<PlannedBucket>& buckets) const;

 private:
  struct Group {
    std::uint32_t number = 0;
    bool is_guess = false;
  };

  std::vector<PlanTensor> Describe(const std::vector<LearnedTensor>& tensors) const;
  BucketPlan PlanPositions(const std::vector<LearnedTensor>& tensors, const LinkModel& link) const;

  const std::unique_ptr<const BucketPlanner> planner_;
  const std::unique_ptr<const BucketPlanner> launched_planner_;
  LinkModel link_;
  std::uint32_t next_group_ = 1;
  std::unordered_map<std::string, Group> group_;  // 0 where absent
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SCHEDULE_PLANNING_SCHEDULE_PLANNER_H_
