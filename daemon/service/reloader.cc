#include "daemon/service/reloader.h"

#include <pthread.h>

#include <atomic>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/base/mutex.h"

namespace ringd {

// Shared with threads that still wait.
struct Reloader::State {
  std::atomic<int> late{0};  // relaxed: a number, by which nothing else is published
};

struct Reloader::Reading {
  explicit Reading(std::shared_ptr<State> of) : state(std::move(of)) {}

  // On the thread that reads.
  void Finish(absl::StatusOr<Reloaded> found) ABSL_LOCKS_EXCLUDED(mutex) {
    const MutexLock lock(mutex);
    if (is_late) {
      state->late.fetch_sub(1, std::memory_order_relaxed);
    } else {
      result = std::move(found);
    }
  }
  // Nothing: it has not finished.
  std::optional<absl::StatusOr<Reloaded>> Take() ABSL_LOCKS_EXCLUDED(mutex) {
    const MutexLock lock(mutex);
    return std::exchange(result, std::nullopt);
  }
  // False: it has finished.
  bool GiveUp() ABSL_LOCKS_EXCLUDED(mutex) {
    const MutexLock lock(mutex);
    if (result.has_value()) return false;
    is_late = true;
    state->late.fetch_add(1, std::memory_order_relaxed);
    return true;
  }

  const std::shared_ptr<State> state;
  Mutex mutex;
  bool is_late ABSL_GUARDED_BY(mutex) = false;  // nobody waits for it any more
  std::optional<absl::StatusOr<Reloaded>> result ABSL_GUARDED_BY(mutex);
};

Reloader::Reloader(std::function<Read()> begin, Clock::duration patience)
    : begin_(std::move(begin)), patience_(patience), state_(std::make_shared<State>()) {}

Reloader::~Reloader() = default;

void Reloader::Ask(Clock::time_point now) {
  if (IsUnderWay()) {
    once_more_ = true;
  } else {
    Begin(now);
  }
}

void Reloader::Begin(Clock::time_point now) {
  reading_ = std::make_shared<Reading>(state_);
  deadline_ = now + patience_;
  if (state_->late.load(std::memory_order_relaxed) >= kMostLate) {
    return reading_->Finish(absl::ResourceExhaustedError(
        absl::StrCat(kMostLate, " former ones still wait for the user database, or for a file")));
  }
  try {
    std::thread([reading = reading_, read = begin_()] {
      ::pthread_setname_np(::pthread_self(), "ringd-reload");
      reading->Finish(read());
    }).detach();
  } catch (const std::system_error& error) {
    reading_->Finish(
        absl::ResourceExhaustedError(absl::StrCat("no thread for it: ", error.what())));
  }
}

std::optional<absl::StatusOr<Reloaded>> Reloader::Take(Clock::time_point now) {
  if (!IsUnderWay()) return std::nullopt;
  std::optional<absl::StatusOr<Reloaded>> result = reading_->Take();
  if (!result.has_value()) {
    // One that finishes just now is taken the next time.
    if (now < deadline_ || !reading_->GiveUp()) return std::nullopt;
    result = absl::DeadlineExceededError(
        absl::StrCat("the user database, or a file, has not answered for ",
                     std::chrono::duration_cast<std::chrono::seconds>(patience_).count(), " s"));
  }
  reading_.reset();
  if (once_more_) {
    once_more_ = false;
    Begin(now);
  }
  return result;
}

}  // namespace ringd
