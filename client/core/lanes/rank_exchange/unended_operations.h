// Operations in the rank exchange that have outlasted the call that began them.
#ifndef RINGD_CLIENT_CORE_LANES_RANK_EXCHANGE_UNENDED_OPERATIONS_H_
#define RINGD_CLIENT_CORE_LANES_RANK_EXCHANGE_UNENDED_OPERATIONS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_set>
#include <vector>

#include "absl/status/status.h"
#include "client/core/attach/session_state.h"
#include "client/core/lanes/rank_exchange/rank_exchange_operations.h"
#include "client/ringd.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"

namespace ringd::client {

// An operation that ranks carry out themselves has ended or been given up after a tenth of a second
// or a few, unless whoever drives, or has to send the others' decision, was stopped amid it. Then
// the call that began it does not wait for that: it hands the operation to this, which gives it a
// number, and the caller waits for it as for any other, with his deadlines and signals.
//
// Thread safety: any thread may call anything.
// Ownership: borrows the rank exchange and the tensors' memory.
class UnendedOperations {
 public:
  // Submits to ringd what the rank exchange has given up, without waiting for room. Nothing: there
  // is none.
  using Submit = std::function<std::optional<absl::Status>(const RankExchangeStay& stay,
                                                           ringd_operation* operation)>;

  UnendedOperations(RankExchangeOperations& rank_exchange, const SessionState& state,
                    Submit submit);
  UnendedOperations(const UnendedOperations&) = delete;
  UnendedOperations& operator=(const UnendedOperations&) = delete;

  static constexpr bool IsOne(ringd_operation operation) noexcept {
    return operation != RINGD_DONE && (operation & kOwnBit) != 0;
  }
  // To be called before a tensor is submitted again, whichever way: ranks match a tensor's
  // operations by their order, so one that the exchange may still give up has to be at ringd before
  // the next. Waits until none of that name is under way.
  //   kDeadlineExceeded: one still is.
  absl::Status Settle(const Registration& tensor, Clock::time_point deadline) {
    return under_way_.load(std::memory_order_acquire) == 0 ? absl::OkStatus()
                                                           : SettleThem(tensor, deadline);
  }
  // The number of what Carry has left under way.
  ringd_operation Keep(const RankExchangeStay& stay);

  enum class Where : std::uint8_t {
    kNowhere,   // there is no such operation (any more)
    kUnderWay,  // in the rank exchange
    kEnded,     // `status` says how
    kAtRingd,   // as `operation`
  };
  struct Found {
    Where where = Where::kNowhere;
    absl::Status status;
    ringd_operation operation = 0;
  };
  // Does not block, nor consume it.
  Found Look(ringd_operation operation);
  // Waits until it is no longer under way, or until the deadline. What has ended well is consumed,
  // and its result copied.
  Found Await(ringd_operation operation, Clock::time_point deadline);
  // One that was found at ringd has ended there, or how it failed has been told.
  void Forget(ringd_operation operation);
  // One of `registrations` that an operation still needs; null: none does.
  const Registration* FindUsed(const std::unordered_set<const Registration*>& registrations);

 private:
  static constexpr ringd_operation kOwnBit = ringd_operation{1} << 62;

  struct Entry {
    ringd_operation number = 0;
    RankExchangeStay stay;
    bool given_up = false;
    Found found{Where::kUnderWay, {}, 0};
  };
  absl::Status SettleThem(const Registration& tensor, Clock::time_point deadline);
  // Waits for something to happen to it.
  void Linger(const RankExchangeStay& stay, bool given_up, Clock::time_point deadline);
  Entry* FindEntry(ringd_operation operation) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Advance(Entry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void End(Entry& entry, Found found) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Erase(const Entry* entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  RankExchangeOperations& rank_exchange_;
  const SessionState& state_;
  const Submit submit_;

  Mutex mutex_;
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mutex_);
  std::atomic<std::size_t> under_way_{0};  // of entries_; written under mutex_
  ringd_operation next_ ABSL_GUARDED_BY(mutex_) = 1;
};

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_LANES_RANK_EXCHANGE_UNENDED_OPERATIONS_H_
