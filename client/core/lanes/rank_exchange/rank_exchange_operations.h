// Operations of a job over several nodes that their ranks carry out themselves, in the rank
// exchange.
#ifndef RINGD_CLIENT_CORE_LANES_RANK_EXCHANGE_RANK_EXCHANGE_OPERATIONS_H_
#define RINGD_CLIENT_CORE_LANES_RANK_EXCHANGE_RANK_EXCHANGE_OPERATIONS_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

#include "client/core/attach/session_state.h"
#include "client/core/tensors/registrations.h"
#include "client/core/waiting/spin_trial.h"
#include "client/core/waiting/trace_sink.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/rank_exchange/rank_exchange.h"
#include "proto/reduce/tensor_scaling.h"

namespace ringd::client {

enum class RankExchangeEnd : std::uint8_t {
  kCompleted,  // the result is in the destination
  kGivenUp,    // it is to be submitted to ringd, and has been counted already
  kUnderWay,   // it goes on: RankExchangeStay
  kEnded,      // the context came to its end meanwhile: SessionState says why
};

// An operation that is under way. Borrows the tensor and the memory.
struct RankExchangeStay {
  std::uint32_t cell = 0;
  Registration* tensor = nullptr;
  const void* source = nullptr;
  void* destination = nullptr;
  std::uint64_t turn = 0;  // SubmissionCount::TakeTurn
  std::uint64_t begin_ns = 0;
};

// From contribution to result, in one call. Whoever waits for its operation drives the exchange,
// or, if another rank or thread of the node does, sleeps: there is no thread for it.
//
// Thread safety: any thread may call anything.
// Ownership: owns the exchange; borrows its segment and the session state, which must outlive it.
class RankExchangeOperations {
 public:
  // `member`: this process's place among the node's ranks. `job_size`: what an average divides by.
  RankExchangeOperations(std::unique_ptr<RankExchange> exchange, std::uint32_t member,
                         std::int32_t job_size, SessionState& state,
                         std::chrono::nanoseconds spin_budget);
  RankExchangeOperations(const RankExchangeOperations&) = delete;
  RankExchangeOperations& operator=(const RankExchangeOperations&) = delete;

  // Notes what is completed. Before the first operation; null, as at first: notes nothing.
  void UseTrace(TraceSink* trace) noexcept { trace_ = trace; }

  // Whether the next submission of `registration` should be tried here: an all-reduce or barrier
  // that is small enough, and not one that somebody has lately kept away from here.
  bool Offers(const Registration& registration) const noexcept;

  // Within so much an operation has been completed or given up, unless somebody who had its fate in
  // his hands was stopped.
  static constexpr std::chrono::milliseconds kLongestCarry{300};
  // Carries out one submission. The pointers are as after Staging::CheckPointers. Blocks until all
  // ranks have come, the operation is given up (RankExchange::kPatience after it was begun, or
  // when the hub says so), the context has ended (kLongestDrive later at most), or kLongestCarry
  // has passed. The source is read before this returns, and the destination not written before the
  // operation is complete; nor after this returns, but by Finish. kUnderWay: `stay` is for the
  // calls below.
  RankExchangeEnd Carry(Registration& tensor, const void* source, void* destination,
                        RankExchangeStay& stay);

  // What has become of it. Does not block.
  RankExchangeOutcome Look(const RankExchangeStay& stay) const noexcept {
    return exchange_->Look(stay.cell);
  }
  // Waits for something to happen to it, for some milliseconds, and not beyond the deadline by more
  // than kLongestDrive; drives meanwhile if nobody else does.
  void TakeTurn(const RankExchangeStay& stay, Clock::time_point deadline);
  // Once after it was completed or given up, as Look said: copies the result; counts.
  void Finish(const RankExchangeStay& stay, RankExchangeOutcome outcome);

  // How many of this process's operations have been completed here.
  std::uint64_t completed() const noexcept {
    return member_.completed.load(std::memory_order_relaxed);
  }
  // How many threads are in Carry right now.
  std::uint32_t callers() const noexcept { return callers_.load(std::memory_order_acquire); }

 private:
  // While this sleeps nobody is noticed but what the exchange watches: not the end of the context.
  static constexpr std::chrono::milliseconds kLongestDrive = RankExchange::kTurn;
  // ... nor that the driver has died.
  static constexpr std::chrono::milliseconds kLongestSleep{5};

  // kPending: the context has ended, or the deadline has passed.
  RankExchangeOutcome Await(std::uint32_t cell, bool spin, Clock::time_point deadline);
  TensorScaling ScalingFor(const TensorDescription& tensor) const;
  void CountGivenUp(const RankExchangeStay& stay) noexcept;
  // Keeps RankExchangeMember up: which is the oldest operation that this process is in.
  void Enter(std::uint32_t cell, const Registration& registration);
  void Leave(std::uint32_t cell);
  void ShowOldest() noexcept ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::unique_ptr<RankExchange> exchange_;
  RankExchangeMember& member_;
  const std::int32_t job_size_;
  const SessionState& state_;
  const std::chrono::nanoseconds spin_budget_;
  TraceSink* trace_ = nullptr;
  SpinTrial trial_;
  std::atomic<std::uint32_t> callers_{0};

  struct Stay {
    std::uint64_t since_ns = 0;  // 0: this process is not in that cell
    std::uint32_t registration = 0;
  };
  Mutex mutex_;
  std::array<Stay, kRankExchangeCells> stays_ ABSL_GUARDED_BY(mutex_);  // by cell
};

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_LANES_RANK_EXCHANGE_RANK_EXCHANGE_OPERATIONS_H_
