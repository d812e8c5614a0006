#include "client/core/fast_path/fast_path_operations.h"

#include <utility>

#include "client/core/waiting/presence.h"
#include "client/core/waiting/relax.h"
#include "client/core/waiting/spin_policy.h"
#include "proto/base/clock.h"
#include "proto/reduce/tensor_scaling.h"

namespace ringd::client {
namespace {

// Looks between two readings of the clock while spinning; asking the kernel whether something has come counts as
// several, since it takes as long.
constexpr int kLooksPerClock = 32;
constexpr int kLooksPerDrive = 8;

// The driver's role, if this thread gets it; given up at the latest when this goes.
class Driver {
 public:
  explicit Driver(FastPathExchange& exchange) : exchange_(exchange) {}
  ~Driver() {
    if (drives_) exchange_.StopDriving();
  }
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  // Does this thread drive, or can it from now on?
  bool Drives() noexcept {
    if (!drives_) drives_ = exchange_.BecomeDriver();
    return drives_;
  }

 private:
  FastPathExchange& exchange_;
  bool drives_ = false;
};

}  // namespace

FastPathOperations::FastPathOperations(std::unique_ptr<FastPathExchange> exchange,
                                       std::uint32_t member, std::int32_t job_size,
                                       SessionState& state, std::chrono::nanoseconds spin_budget)
    : exchange_(std::move(exchange)),
      member_(exchange_->view().Member(member)),
      job_size_(job_size),
      state_(state),
      spin_budget_(spin_budget) {}

bool FastPathOperations::Offers(const Registration& registration) const noexcept {
  const CollectiveKind kind = registration.description.kind;
  return (kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kBarrier) &&
         registration.bytes <= exchange_->view().limit_bytes() && exchange_->Usable() &&
         registration.submissions.ShouldTry() && state_.alive();
}

FastPathEnd FastPathOperations::Carry(Registration& tensor, const void* source, void* destination) {
  const Presence presence(callers_);
  const TensorDescription& description = tensor.description;
  const std::uint64_t turn = tensor.submissions.TakeTurn();
  FastPathContribution contribution;
  contribution.key = {tensor.signature, turn};
  contribution.data_type = description.data_type;
  contribution.op = description.op;
  const TensorScaling scaling =
      ScalingOf(description.data_type, description.op, description.prescale, description.postscale,
                job_size_, /*several_nodes=*/true);
  contribution.prescale = scaling.prescale;
  contribution.source = source;
  contribution.element_count = tensor.element_count;
  // All ranks have completed the same operations here, and so agree on when to try which.
  const std::uint64_t completed = member_.completed.load(std::memory_order_relaxed);
  const Clock::time_point begin = Clock::now();
  std::uint32_t cell = 0;
  FastPathOutcome outcome = exchange_->Contribute(contribution, cell);
  const bool has_cell = outcome != FastPathOutcome::kGivenUp;
  if (outcome == FastPathOutcome::kPending) {
    Enter(cell, tensor);
    outcome = Await(cell, trial_.Spins(completed));
    Leave(cell);
  }
  switch (outcome) {
    case FastPathOutcome::kPending:
      return FastPathEnd::kEnded;
    case FastPathOutcome::kGivenUp:
      if (has_cell) exchange_->Depart(cell);
      tensor.submissions.GivenUp(turn);
      member_.given_up.fetch_add(1, std::memory_order_relaxed);
      return FastPathEnd::kGivenUp;
    case FastPathOutcome::kCompleted:
      break;
  }
  exchange_->Take(cell, description.data_type, destination, tensor.element_count, scaling.result);
  trial_.Learn(completed, Clock::now() - begin);
  tensor.submissions.Completed();
  member_.bytes.fetch_add(contribution.bytes(), std::memory_order_relaxed);
  member_.completed.fetch_add(1, std::memory_order_relaxed);
  return FastPathEnd::kCompleted;
}

FastPathOutcome FastPathOperations::Await(std::uint32_t cell, bool spin) {
  Driver driver(*exchange_);
  if (spin && spin_budget_.count() > 0) {
    const Clock::time_point spin_end = Clock::now() + spin_budget_;
    SpinRhythm rhythm(kLooksPerClock);
    do {
      for (int looks = 0; looks < rhythm.looks();) {
        if (driver.Drives()) {
          exchange_->Drive(std::chrono::milliseconds(0));
          looks += kLooksPerDrive;
        } else {
          Relax();
          ++looks;
        }
        const FastPathOutcome outcome = exchange_->Look(cell);
        if (outcome != FastPathOutcome::kPending) return outcome;
      }
    } while (rhythm.Yield() < spin_end);
  }
  for (;;) {
    const bool drives = driver.Drives();
    // After the role has been taken: from then on this thread is told if another one ends the operation.
    const FastPathOutcome outcome = exchange_->Look(cell);
    // Unlike an operation of ringd's, this one is ended by nobody after the job's failure.
    if (outcome != FastPathOutcome::kPending || !state_.alive()) return outcome;
    if (drives) {
      exchange_->Drive(kLongestDrive);
    } else {
      exchange_->Sleep(cell, kLongestSleep);
    }
  }
}

void FastPathOperations::Enter(std::uint32_t cell, const Registration& registration) {
  MutexLock lock(mutex_);
  stays_[cell] = {MonotonicNanos(), registration.numbers.registration};
  ShowOldest();
}

void FastPathOperations::Leave(std::uint32_t cell) {
  MutexLock lock(mutex_);
  stays_[cell] = {};
  ShowOldest();
}

void FastPathOperations::ShowOldest() noexcept {
  Stay oldest;
  for (const Stay& stay : stays_) {
    if (stay.since_ns != 0 && (oldest.since_ns == 0 || stay.since_ns < oldest.since_ns)) {
      oldest = stay;
    }
  }
  // ringd reads the two one after the other, and may see them of different operations: its picture is of
  // the moment anyway.
  member_.since_ns.store(oldest.since_ns, std::memory_order_relaxed);
  member_.registration.store(oldest.since_ns == 0 ? 0 : oldest.registration + 1,
                             std::memory_order_release);
}

}  // namespace ringd::client
