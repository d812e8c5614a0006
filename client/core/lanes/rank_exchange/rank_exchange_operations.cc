#include "client/core/lanes/rank_exchange/rank_exchange_operations.h"

#include <algorithm>
#include <utility>

#include "client/core/waiting/presence.h"
#include "client/core/waiting/relax.h"
#include "client/core/waiting/spin_policy.h"
#include "proto/operations/operation_traits.h"

namespace ringd::client {
namespace {

// Looks between two readings of the clock while spinning; asking the kernel whether something has
// come counts as several, since it takes as long.
constexpr int kLooksPerClock = 32;
constexpr int kLooksPerDrive = 8;

// The driver's role, if this thread gets it; given up at the latest when this goes.
class Driver {
 public:
  explicit Driver(RankExchange& exchange) : exchange_(exchange) {}
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
  RankExchange& exchange_;
  bool drives_ = false;
};

}  // namespace

RankExchangeOperations::RankExchangeOperations(std::unique_ptr<RankExchange> exchange,
                                               std::uint32_t member, std::int32_t job_size,
                                               SessionState& state,
                                               std::chrono::nanoseconds spin_budget)
    : exchange_(std::move(exchange)),
      member_(exchange_->view().Member(member)),
      job_size_(job_size),
      state_(state),
      spin_budget_(spin_budget) {}

bool RankExchangeOperations::Offers(const Registration& registration) const noexcept {
  const OperationTraits& traits = TraitsOf(registration.description.kind);
  return (traits.CombinesForAll() || !traits.moves_data) &&
         registration.bytes <= exchange_->view().limit_bytes() && exchange_->Usable() &&
         registration.submissions->ShouldTry() && state_.alive();
}

TensorScaling RankExchangeOperations::ScalingFor(const TensorDescription& tensor) const {
  return ScalingOf(tensor.data_type, tensor.op, tensor.prescale, tensor.postscale, job_size_,
                   /*several_nodes=*/true);
}

RankExchangeEnd RankExchangeOperations::Carry(Registration& tensor, const void* source,
                                              void* destination, RankExchangeStay& stay) {
  const Presence presence(callers_);
  const Clock::time_point begin = Clock::now();
  stay = {0, &tensor, source, destination, tensor.submissions->TakeTurn(), NanosOf(begin)};
  RankExchangeContribution contribution;
  contribution.key = {tensor.signature, stay.turn};
  contribution.data_type = tensor.description.data_type;
  contribution.op = tensor.description.op;
  contribution.prescale = ScalingFor(tensor.description).prescale;
  contribution.source = source;
  contribution.element_count = tensor.element_count;
  // All ranks have completed the same operations here, and so agree on when to try which.
  const std::uint64_t completed = member_.completed.load(std::memory_order_relaxed);
  RankExchangeOutcome outcome = exchange_->Contribute(contribution, stay.cell);
  if (outcome == RankExchangeOutcome::kGivenUp) {
    CountGivenUp(stay);
    return RankExchangeEnd::kGivenUp;
  }
  if (outcome == RankExchangeOutcome::kPending) {
    Enter(stay.cell, tensor);
    outcome = Await(stay.cell, trial_.Spins(completed), begin + kLongestCarry);
  }
  if (outcome == RankExchangeOutcome::kPending) {
    if (state_.alive()) return RankExchangeEnd::kUnderWay;
    Leave(stay.cell);
    return RankExchangeEnd::kEnded;
  }
  Finish(stay, outcome);
  if (outcome == RankExchangeOutcome::kGivenUp) return RankExchangeEnd::kGivenUp;
  trial_.Learn(completed, Clock::now() - begin);
  return RankExchangeEnd::kCompleted;
}

void RankExchangeOperations::CountGivenUp(const RankExchangeStay& stay) noexcept {
  stay.tensor->submissions->GivenUp(stay.turn);
  member_.given_up.fetch_add(1, std::memory_order_relaxed);
}

void RankExchangeOperations::Finish(const RankExchangeStay& stay, RankExchangeOutcome outcome) {
  Registration& tensor = *stay.tensor;
  Leave(stay.cell);
  if (outcome == RankExchangeOutcome::kGivenUp) {
    exchange_->Depart(stay.cell);
    CountGivenUp(stay);
    return;
  }
  exchange_->Take(stay.cell, tensor.description.data_type, stay.destination, tensor.element_count,
                  ScalingFor(tensor.description).result);
  tensor.submissions->Completed();
  member_.bytes.fetch_add(tensor.element_count * SizeOf(tensor.description.data_type),
                          std::memory_order_relaxed);
  member_.completed.fetch_add(1, std::memory_order_relaxed);
  if (trace_ == nullptr) return;
  TraceEvent event;
  event.stage = TraceStage::kRankExchange;
  event.tensor = tensor.numbers.tensor;
  event.sequence = static_cast<std::uint32_t>(stay.turn);
  trace_->WriteSince(stay.begin_ns, event);
}

void RankExchangeOperations::TakeTurn(const RankExchangeStay& stay, Clock::time_point deadline) {
  const Presence presence(callers_);
  Await(stay.cell, /*spin=*/false, std::min(deadline, Clock::now() + kLongestDrive));
}

RankExchangeOutcome RankExchangeOperations::Await(std::uint32_t cell, bool spin,
                                                  Clock::time_point deadline) {
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
        const RankExchangeOutcome outcome = exchange_->Look(cell);
        if (outcome != RankExchangeOutcome::kPending) return outcome;
      }
    } while (rhythm.Yield() < spin_end);
  }
  for (;;) {
    const bool drives = driver.Drives();
    // After the role has been taken: from then on this thread is told if another one ends the
    // operation.
    const RankExchangeOutcome outcome = exchange_->Look(cell);
    // Unlike an operation of ringd's, this one is ended by nobody after the job's failure.
    if (outcome != RankExchangeOutcome::kPending || !state_.alive()) return outcome;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) return outcome;
    if (drives) {
      exchange_->Drive(std::min(left, kLongestDrive));
    } else {
      exchange_->Sleep(cell, std::min(left, kLongestSleep));
    }
  }
}

void RankExchangeOperations::Enter(std::uint32_t cell, const Registration& registration) {
  MutexLock lock(mutex_);
  stays_[cell] = {MonotonicNanos(), registration.numbers.registration};
  ShowOldest();
}

void RankExchangeOperations::Leave(std::uint32_t cell) {
  MutexLock lock(mutex_);
  stays_[cell] = {};
  ShowOldest();
}

void RankExchangeOperations::ShowOldest() noexcept {
  Stay oldest;
  for (const Stay& stay : stays_) {
    if (stay.since_ns != 0 && (oldest.since_ns == 0 || stay.since_ns < oldest.since_ns)) {
      oldest = stay;
    }
  }
  // ringd reads the two one after the other, and may see them of different operations: its picture
  // is of the moment anyway.
  member_.since_ns.store(oldest.since_ns, std::memory_order_relaxed);
  member_.registration.store(oldest.since_ns == 0 ? 0 : oldest.registration + 1,
                             std::memory_order_release);
}

}  // namespace ringd::client
