#include "daemon/service/reloader.h"

#include <pthread.h>

#include <system_error>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/base/mutex.h"

namespace ringd {

// Shared with threads that still wait.
struct Reloader::State {
  Mutex mutex;
  int late ABSL_GUARDED_BY(mutex) = 0;
};

struct Reloader::Reading {
  explicit Reading(std::shared_ptr<State> of) : state(std::move(of)) {}

  // On the thread that reads.
  void Finish(absl::StatusOr<Reloaded> found) ABSL_LOCKS_EXCLUDED(state->mutex) {
    const MutexLock lock(state->mutex);
    if (is_late) {
      --state->late;
    } else {
      result = std::move(found);
    }
  }

  const std::shared_ptr<State> state;
  bool is_late ABSL_GUARDED_BY(state->mutex) = false;  // nobody waits for it any more
  std::optional<absl::StatusOr<Reloaded>> result ABSL_GUARDED_BY(state->mutex);
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
  {
    const MutexLock lock(state_->mutex);
    if (state_->late >= kMostLate) {
      reading_->result = absl::ResourceExhaustedError(absl::StrCat(
          state_->late, " former ones still wait for the user database, or for a file"));
      return;
    }
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
  std::optional<absl::StatusOr<Reloaded>> result;
  {
    const MutexLock lock(state_->mutex);
    if (!reading_->result.has_value()) {
      if (now < deadline_) return std::nullopt;
      reading_->is_late = true;
      ++state_->late;
      reading_->result = absl::DeadlineExceededError(
          absl::StrCat("the user database, or a file, has not answered for ",
                       std::chrono::duration_cast<std::chrono::seconds>(patience_).count(), " s"));
    }
    result = std::move(reading_->result);
  }
  reading_.reset();
  if (once_more_) {
    once_more_ = false;
    Begin(now);
  }
  return result;
}

}  // namespace ringd
