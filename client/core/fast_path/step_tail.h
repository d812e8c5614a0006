// Which tensors a rank submits last in each step, right before it waits: nothing hides what they take.
#ifndef RINGD_CLIENT_CORE_FAST_PATH_STEP_TAIL_H_
#define RINGD_CLIENT_CORE_FAST_PATH_STEP_TAIL_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "client/core/fast_path/fast_path_operations.h"
#include "client/core/tensors/registrations.h"

namespace ringd::client {

// Learns the *tail* of rounds. A round is what is submitted between two waits; its tail are the last tensor, if it is small
// enough, and small ones before it that can be combined with it. From the kAlike-th round on in which the same tail came
// last, its tensors are to be held instead of submitted, for the wait that follows.
//
// It looks at nothing but the order of calls and the tensors' descriptions, which are the same at all ranks of a
// program that does the same at all ranks, and not at times, which are not: so ranks hold the same tensors in the same
// rounds without a word. Where they do not, the fast path gives up what they hold.
//
// Thread safety: none.
class StepTail {
 public:
  // Rounds with the same tail before it is held.
  static constexpr int kAlike = 3;
  // One that was released or given up is held again at a multiple of this (SubmissionCount::count): ranks differ in which
  // of the two befell them, and in when, and would miss each other for long.
  static constexpr std::uint64_t kAgainAt = 8;
  // What comes before the last tensor may be late for it only while it costs hardly anything there.
  static constexpr std::uint64_t kMostOtherBytes = 4096;
  static constexpr std::size_t kMostTensors = FastPathOperations::kMostParts;
  // A round with less before its tail would rather be one bucket of ringd's than two operations.
  static constexpr std::uint64_t kLeastBefore = std::uint64_t{1} << 20;
  // Kinds of rounds that are told apart (gradients, then metrics, two models in turn).
  static constexpr std::size_t kMostTails = 8;

  // `limit_bytes`: of a tail.
  explicit StepTail(std::uint64_t limit_bytes) noexcept : limit_bytes_(limit_bytes) {}

  // A submission: true if it is to be held. If not, and others are held, they are not what they were taken for: submit
  // them before it, and call OnReleased. `tensor` must live as long as this.
  [[nodiscard]] bool OnSubmit(Registration& tensor);
  // A wait: true if what is held is a whole tail. If it is not, submit it, and call OnReleased.
  [[nodiscard]] bool OnWait();
  // A look at an operation without a wait: how often that happens is a matter of time, so the round is left out.
  void OnTest() noexcept { tested_ = true; }
  // What was held has been submitted after all: its tail has to prove itself again.
  void OnReleased() noexcept;
  // The whole tail that ends with `last` was given up on the fast path: some rank has released it, or is late.
  void OnGivenUp(const Registration& last) noexcept;

  std::size_t held() const noexcept { return held_; }

 private:
  struct Tail {
    std::vector<Registration*> tensors;
    int alike = 0;        // rounds in a row
    bool failed = false;  // since it was held last
    std::uint64_t last_round = 0;
  };

  // The tail of the round that ends now; empty if it has none. Valid until it is called again.
  const std::vector<Registration*>& TailOfRound();
  void Learn(const std::vector<Registration*>& tensors);
  bool Begins(const Tail& tail, const Registration& tensor) const;

  const std::uint64_t limit_bytes_;
  std::vector<Tail> tails_;
  std::uint64_t rounds_ = 0;

  // Of this round.
  std::vector<Registration*> recent_;  // the last kMostTensors
  std::uint64_t bytes_ = 0;
  bool tested_ = false;

  Tail* active_ = nullptr;  // some of whose tensors are held
  std::size_t held_ = 0;
  std::vector<Registration*> scratch_;  // of TailOfRound
};

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_FAST_PATH_STEP_TAIL_H_
