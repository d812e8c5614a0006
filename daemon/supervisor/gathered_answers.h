// One answer made of those of several engines.
#ifndef RINGD_DAEMON_SUPERVISOR_GATHERED_ANSWERS_H_
#define RINGD_DAEMON_SUPERVISOR_GATHERED_ANSWERS_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/mutex.h"

namespace ringd {

// Thread safety: any thread.
// Ownership: shared by the calls that it waits for.
template <typename Reply>
class GatheredAnswers {
 public:
  // In the order of those who were asked. Runs once, on the thread of the last answer.
  using Done = std::function<void(std::vector<absl::StatusOr<Reply>>)>;

  GatheredAnswers(std::size_t count, Done done)
      : answers_(count, absl::UnavailableError("no answer")),
        missing_(count),
        done_(std::move(done)) {}

  void Take(std::size_t place, const absl::Status& status, Reply reply)
      ABSL_LOCKS_EXCLUDED(mutex_) {
    std::vector<absl::StatusOr<Reply>> answers;
    {
      const MutexLock lock(mutex_);
      answers_.at(place) =
          status.ok() ? absl::StatusOr<Reply>(std::move(reply)) : absl::StatusOr<Reply>(status);
      if (--missing_ > 0) return;
      std::swap(answers, answers_);
    }
    done_(std::move(answers));
  }

 private:
  Mutex mutex_;
  std::vector<absl::StatusOr<Reply>> answers_ ABSL_GUARDED_BY(mutex_);
  std::size_t missing_ ABSL_GUARDED_BY(mutex_);
  const Done done_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SUPERVISOR_GATHERED_ANSWERS_H_
