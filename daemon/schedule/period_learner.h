// Watches which negotiated tensors return step after step.
//
// A period (a training step, as far as the negotiated tensors show it) ends when one of its tensors
// is executed again. A tensor that came in enough consecutive periods with the same description is
// stable: the coordinator may schedule it, and then it is no longer observed here.
//
// Thread safety: none.
// Invariant: memory is bounded: tensors that stay away are forgotten, and a period of very many
//   different tensors (names made up for each call) is cut.
#ifndef RINGD_DAEMON_SCHEDULE_PERIOD_LEARNER_H_
#define RINGD_DAEMON_SCHEDULE_PERIOD_LEARNER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "daemon/schedule/schedule_time.h"
#include "daemon/schedule/tensor_meta.h"

namespace ringd {

struct LearnedTensor {
  std::string name;
  TensorMeta meta;
  std::chrono::nanoseconds ready_offset{0};  // in its period, mean over the observed ones
  bool follows_wait = false;                 // in every observed period
};

class PeriodLearner {
 public:
  explicit PeriodLearner(int periods_to_learn) : periods_to_learn_(periods_to_learn) {}

  // Notes that the tensor was ready everywhere and is executed. True if that began a new period:
  // then TakeStable may have tensors.
  bool OnExecuted(const std::string& name, const TensorMeta& meta, bool follows_wait,
                  TimePoint now);

  // The stable tensors of the period that ended last, in readiness order; forgets them. Empty while
  // tensors that may become stable soon are not yet, since tensors planned together fuse better.
  std::vector<LearnedTensor> TakeStable();

  // The tensor departed from its schedule by itself: it must prove stable for twice as long as the
  // last time.
  void Penalise(const std::string& name);
  // No local rank knows the tensor any more.
  void Forget(const std::string& name);

  std::uint64_t periods() const { return period_; }

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

  const int periods_to_learn_;
  std::uint64_t period_ = 0;
  TimePoint period_start_;
  std::vector<std::string> current_;   // executed in this period
  std::vector<std::string> previous_;  // executed in the last one
  int waited_ = 0;                     // periods for which stable tensors waited for others
  std::unordered_map<std::string, Observation> observations_;
  std::unordered_map<std::string, int> required_streak_;  // where it is not periods_to_learn_
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SCHEDULE_PERIOD_LEARNER_H_
