#include "daemon/service/reloader.h"

#include <pthread.h>

#include <system_error>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/base/mutex.h"

namespace ringd {

// Shared with its thread, which may come to its end long after nobody waits for it any more.
struct Reloader::Reading {
  // On the thread that reads.
  void Finish(absl::StatusOr<Reloaded> found) ABSL_LOCKS_EXCLUDED(mutex) {
    const MutexLock lock(mutex);
    result = std::move(found);
  }
  // Nothing: it has not finished.
  std::optional<absl::StatusOr<Reloaded>> Take() ABSL_LOCKS_EXCLUDED(mutex) {
    const MutexLock lock(mutex);
    return std::exchange(result, std::nullopt);
  }

  Mutex mutex;
  std::optional<absl::StatusOr<Reloaded>> result ABSL_GUARDED_BY(mutex);
};

Reloader::Reloader(std::function<Read()> begin, Clock::duration patience)
    : begin_(std::move(begin)), patience_(patience) {}

Reloader::~Reloader() = default;

void Reloader::Ask(Clock::time_point now) {
  if (IsUnderWay()) {
    once_more_ = true;
  } else {
    Begin(now);
  }
}

void Reloader::Begin(Clock::time_point now) {
  reading_ = std::make_shared<Reading>();
  deadline_ = now + patience_;
  CountedPlaces::Place place = threads_.Take();
  if (place == nullptr) {
    return reading_->Finish(absl::ResourceExhaustedError(
        absl::StrCat(kMostLate, " former ones still wait for the user database, or for a file")));
  }
  try {
    std::thread([reading = reading_, read = begin_(), place = std::move(place)]() mutable {
      ::pthread_setname_np(::pthread_self(), "ringd-reload");
      absl::StatusOr<Reloaded> found = read();
      place.reset();
      reading->Finish(std::move(found));
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
    if (now < deadline_) return std::nullopt;
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
