// How a context finds out that ringd has gone, or hangs, and what it says of that.
#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/core/attach/engine_process.h"
#include "client/core/context.h"
#include "proto/shm/session_segment.h"

namespace ringd::client {
namespace {

// How long the lifeline may take to tell of a death that a call has noticed already.
constexpr std::chrono::milliseconds kLossDelay{300};

}  // namespace

bool Context::AnyWaiter() const noexcept {
  const LocalOperations* const local = watched_local_.load(std::memory_order_acquire);
  const RankExchangeOperations* const rank_exchange =
      watched_rank_exchange_.load(std::memory_order_acquire);
  const HostPath* const host_path = host_path_now_.load(std::memory_order_acquire);
  return ringd_operations_.waiters() > 0 || (host_path != nullptr && host_path->waiters() > 0) ||
         (local != nullptr && local->waiters() > 0) ||
         (rank_exchange != nullptr && rank_exchange->callers() > 0) || node_lanes_.AnyWaiter();
}

void Context::WatchRingd(Clock::time_point now) {
  // Whoever has found that the session is lost has at most woken those who wait for operations.
  if (state_.phase() == SessionState::Phase::kLost && !std::exchange(has_woken_lost_, true)) {
    WakeAll();
  }
  if (!state_.alive()) return;
  const LocalOperations* const local = watched_local_.load(std::memory_order_acquire);
  const RankExchangeOperations* const rank_exchange =
      watched_rank_exchange_.load(std::memory_order_acquire);
  const auto& header = *reinterpret_cast<const SessionHeader*>(segment_.data());
  RingdWatch::Sight sight;
  sight.heartbeat = header.heartbeat.load(std::memory_order_relaxed);
  sight.in_operation = AnyWaiter();
  sight.in_call = calls_.load(std::memory_order_relaxed) > 0;
  sight.progress = (local == nullptr ? 0 : local->consumed()) +
                   (rank_exchange == nullptr ? 0 : rank_exchange->completed()) +
                   node_lanes_.consumed();
  const std::uint32_t timeout_ms = operation_timeout_ms_.load(std::memory_order_relaxed);
  sight.operation_timeout = std::chrono::milliseconds(timeout_ms);
  const RingdWatch::Verdict verdict = watch_.Look(sight, now);
  const RingdWatch::Verdict of_calls = WatchCalls(sight.in_call, now);
  const std::chrono::seconds silence = std::max(verdict.silence, of_calls.silence);
  engine_is_silent_.store(verdict.silence >= RingdWatch::kPatience, std::memory_order_relaxed);
  silence_s_.store(silence >= RingdWatch::kPatience ? silence.count() : 0,
                   std::memory_order_relaxed);
  if (verdict.warn || (of_calls.warn && verdict.silence < RingdWatch::kPatience)) {
    on_warning_(absl::StrCat("rank ", places_.rank, " is waiting, and ",
                             DescribeSilence(silence.count()),
                             ": what needs it goes on when it does"));
  }
  if (!verdict.timed_out) return;
  state_.Lose(absl::AbortedError(absl::StrCat(
      "an operation did not complete within the operation timeout of ",
      static_cast<double>(timeout_ms) / 1000, " s: ", DescribeSilence(verdict.silence.count()))));
  has_woken_lost_ = true;
  WakeAll();
}

// The engine may work while ringd, which hands calls to it, does not.
RingdWatch::Verdict Context::WatchCalls(bool in_call, Clock::time_point now) {
  if (!in_call) {
    call_watch_ = RingdWatch();
    return {};
  }
  RingdWatch::Sight sight;
  sight.heartbeat = control_->Ping();
  sight.in_call = true;
  return call_watch_.Look(sight, now);
}

std::string Context::DescribeSilence(std::int64_t seconds) const {
  if (!engine_is_silent_.load(std::memory_order_relaxed)) {
    return absl::StrCat(RingdName(), " has not answered for ", seconds, " s");
  }
  // Behind a container's boundary, which hides ringd's pid, the engine's is another process's.
  const pid_t engine = ringd_pid_ == 0 ? 0 : engine_pid_.load(std::memory_order_relaxed);
  const std::string state = DescribeEngine(engine);
  return absl::StrCat(
      RingdName(), " has not answered for ", seconds, " s",
      state.empty() ? "" : absl::StrCat(" (its engine, pid ", engine, ", is ", state, ")"));
}

std::string Context::RingdName() const {
  MutexLock lock(node_name_mutex_);
  if (ringd_pid_ == 0) return absl::StrCat("ringd on ", node_name_);
  return absl::StrCat("ringd (pid ", ringd_pid_, ") on ", node_name_);
}

absl::Status Context::Explain(const absl::Status& status) {
  if (absl::IsDeadlineExceeded(status)) {
    const std::int64_t silence = silence_s_.load(std::memory_order_relaxed);
    return silence == 0 ? status : absl::DeadlineExceededError(DescribeSilence(silence));
  }
  // An engine that has gone takes the session of a rank that had joined along.
  const bool session_has_gone =
      absl::IsUnauthenticated(status) && engine_pid_.load(std::memory_order_relaxed) != 0;
  if (!absl::IsUnavailable(status) && !session_has_gone) return status;
  const Clock::time_point deadline = Clock::now() + kLossDelay;
  while (state_.alive() && Clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return state_.alive() ? status : state_.status();
}

}  // namespace ringd::client
