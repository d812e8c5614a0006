// What an engine has told, and waits for it.
#ifndef RINGD_TESTS_DAEMON_ENGINE_RECORDED_LISTENER_H_
#define RINGD_TESTS_DAEMON_ENGINE_RECORDED_LISTENER_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "daemon/engine/engine_listener.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"

namespace ringd {

// Thread safety: any thread.
class RecordedListener final : public EngineListener {
 public:
  void OnSessionEnded(SessionId session, bool for_cause) override {
    Note(absl::StrCat("session ", session.value(), for_cause ? " for cause" : ""));
  }
  void OnJobs(std::uint32_t jobs) override { Note(absl::StrCat("jobs ", jobs)); }
  void OnGeneration(std::uint32_t next) override { Note(absl::StrCat("generation ", next)); }
  void OnJobEnded(const v1::Job& job) override {
    Note(absl::StrCat(job.job_id(), " ", job.state()));
    MutexLock lock(mutex_);
    ended_.push_back(job);
  }
  void OnIdle(std::uint64_t sessions) override { Note(absl::StrCat("idle ", sessions)); }

  // All so far, once this has been told (or 20 s later).
  std::vector<std::string> Await(const std::string& what) {
    MutexLock lock(mutex_);
    const Clock::time_point deadline = Clock::now() + std::chrono::seconds(20);
    while (!HasLocked(what) && changed_.WaitUntil(mutex_, deadline)) {
    }
    return told_;
  }
  std::vector<std::string> told() {
    MutexLock lock(mutex_);
    return told_;
  }
  bool Has(const std::string& what) {
    MutexLock lock(mutex_);
    return HasLocked(what);
  }
  std::vector<v1::Job> ended() {
    MutexLock lock(mutex_);
    return ended_;
  }

 private:
  void Note(std::string what) {
    MutexLock lock(mutex_);
    told_.push_back(std::move(what));
    changed_.NotifyAll();
  }
  bool HasLocked(const std::string& what) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (const std::string& told : told_) {
      if (told == what) return true;
    }
    return false;
  }

  Mutex mutex_;
  CondVar changed_;
  std::vector<std::string> told_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::Job> ended_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ringd

#endif  // RINGD_TESTS_DAEMON_ENGINE_RECORDED_LISTENER_H_
