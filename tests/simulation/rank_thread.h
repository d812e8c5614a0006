// One thread of a simulated trainer: submits, waits and computes as its program says.
#ifndef RINGD_TESTS_SIMULATION_RANK_THREAD_H_
#define RINGD_TESTS_SIMULATION_RANK_THREAD_H_

#include <chrono>
#include <cstddef>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "tests/simulation/ledger.h"
#include "tests/simulation/random.h"
#include "tests/simulation/scenario.h"

namespace ringd::simulation {

// Thread safety: none. Ownership: the program must outlive it; submissions stay where they are.
class RankThread {
 public:
  enum class Need { kCompute, kSubmission, kBarrier, kNothing };
  // What it does next. kCompute: call again after `compute`. kSubmission: `submission` is new, hand
  // it to the engine and call again. kBarrier: call again when all threads of its kind have
  // reached `phase`. kNothing: blocked, or done.
  struct Step {
    Need need = Need::kNothing;
    std::chrono::nanoseconds compute{0};
    Submission* submission = nullptr;
  };

  RankThread(int rank, const Program& program, Random random)
      : rank_(rank), program_(program), random_(random) {}

  Step Next();

  int rank() const { return rank_; }
  // The phase it is in; the number of phases when it is done.
  std::size_t phase() const { return phase_; }
  bool done() const { return phase_ == program_.size(); }
  // Blocked in a wait that ringd sees.
  bool blocked() const { return waiting_for_ != nullptr && !waiting_for_->ended; }
  // Whether it has waited since the last call of this method.
  bool TakeWaited();

 private:
  void EnterPhase();
  Submission& MakeSubmission();

  const int rank_;
  const Program& program_;
  Random random_;

  std::size_t phase_ = 0;
  bool entered_ = false;
  bool passed_barrier_ = false;
  bool computed_ = false;
  bool considered_wait_ = false;
  std::vector<std::size_t> order_;    // of the tensors still to submit, last first
  std::vector<Submission*> to_wait_;  // at the end of the phase
  std::vector<Submission*> open_;     // submitted and perhaps not ended, earlier phases included
  Submission* waiting_for_ = nullptr;
  bool waited_ = false;
  std::map<std::string, int> occurrences_;
  std::deque<Submission> submissions_;
};

}  // namespace ringd::simulation

#endif  // RINGD_TESTS_SIMULATION_RANK_THREAD_H_
