// Watches which negotiated tensors return step after step.
//
// A period (a training step, as far as the negotiated tensors show it) ends when one of its tensors
// is executed again. A tensor that came in enough consecutive periods with the same description is
// stable: the coordinator may schedule it, and then it is no longer observed here.
//
// Thread safety: none.
// Invariant: memory is bounded: tensors that stay away are forgotten, and a period of very many
//   different tensors (names made up for each call) is cut.
#ifndef RINGD_DAEMON_SCHEDULE_PLANNING_PERIOD_LEARNER_H_
#define RINGD_DAEMON_SCHEDULE_PLANNING_PERIOD_LEARNER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "daemon/schedule/planning/kept_plan.h"
#include "daemon/schedule/protocol/schedule_time.h"
#include "daemon/schedule/protocol/tensor_meta.h"

namespace ringd {

struct LearnedTensor {
  std::string name;
  TensorMeta meta;
  std::chrono::nanoseconds ready_offset{0};  // in its period, mean over the observed ones
  // In every observed period; if it needs a launch, in some.
  bool follows_wait = false;
  // Tensors learned together come equally often. Of two of them only such may share a bucket that
  // have also been executed equally often since: otherwise the bucket would wait for the one's
  // occurrence of this step and the other's of the next.
  std::uint64_t learned_with = 0;  // equal for tensors learned together
  std::uint64_t executed = 0;      // since they were learned
};

class PeriodLearner {
 public:
  explicit PeriodLearner(int periods_to_learn) : periods_to_learn_(periods_to_learn) {}

  // Notes that a node announced the tensor. True if it was executed in this period already and
  // there may be stable tensors: the period is about to end, and this is the moment to call
  // TakeStable, before the tensor is executed again.
  bool OnAnnounced(const std::string& name);

  // Notes that the tensor was ready everywhere and is executed. True if that began a new period.
  bool OnExecuted(const std::string& name, const TensorMeta& meta, bool follows_wait,
                  TimePoint now);

  // The stable tensors that were executed in this period (so that the next occurrence of each
  // belongs to the next period), in readiness order; forgets them. Empty while tensors that may
  // become stable soon are not yet, since tensors planned together fuse better.
  std::vector<LearnedTensor> TakeStable();

  // True if all tensors of a bucket of an earlier job were executed in this period, as that job
  // described them, and none has departed from a schedule of this job.
  bool IsConfirmed(const KeptBucket& bucket) const;
  // Its tensors, which are observed no longer; with what the earlier job knew of them. Requirement:
  // IsConfirmed. Call EndTake() after the last of those that are taken together.
  std::vector<LearnedTensor> TakeKept(const KeptBucket& bucket);
  void EndTake();

  // The tensor departed from its schedule by itself: it must prove stable for twice as long as the
  // last time.
  void Penalise(const std::string& name);
  // No local rank knows the tensor any more.
  void Forget(const std::string& name);

 private:
  struct Observation {
    TensorMeta meta;
    int streak = 0;  // consecutive periods with this description
    std::uint64_t last_period = 0;
    std::chrono::nanoseconds offset_sum{0};  // over the streak
    bool follows_wait = false;
  };

  void BeginPeriod(TimePoint now);
  void ForgetAbsent();
  int RequiredStreak(const std::string& name) const;

  bool MustWaitForOthers() const;

  const int periods_to_learn_;
  std::uint64_t period_ = 0;
  TimePoint period_start_;
  std::vector<std::string> current_;   // executed in this period, each once
  std::vector<std::string> previous_;  // executed in the last one
  std::size_t tried_at_ = 0;           // current_.size() when OnAnnounced was last true
  std::uint64_t taken_ = 0;            // how often TakeStable had something
  int waited_ = 0;                     // periods for which stable tensors waited for others
  bool waits_ = false;                 // they do in this period
  std::unordered_map<std::string, Observation> observations_;
  std::unordered_map<std::string, int> required_streak_;  // where it is not periods_to_learn_
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SCHEDULE_PLANNING_PERIOD_LEARNER_H_
