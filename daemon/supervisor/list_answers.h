// What several engines answer to one list, within what ringd can afford.
#ifndef RINGD_DAEMON_SUPERVISOR_LIST_ANSWERS_H_
#define RINGD_DAEMON_SUPERVISOR_LIST_ANSWERS_H_

#include <google/protobuf/descriptor.h>
#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/supervisor/engine_reply.h"
#include "proto/base/mutex.h"

namespace ringd {

// Gathers answers, and keeps as many of them as fit. If all don't, the longest answer of the user
// with most goes, again and again: nobody makes others' jobs disappear from an operator's list.
//
// Thread safety: any thread.
// Ownership: shared by the calls that it waits for.
// Invariant: what it holds never exceeds the limits by more than one answer; with each it holds its
//   room.
class ListAnswers {
 public:
  struct Limits {
    std::size_t bytes = std::size_t{40} << 20;  // as they become; gRPC's messages have 64 MiB
    std::size_t parts = 2'000'000;
  };
  // Of an engine that is asked.
  struct Asked {
    uid_t user = 0;
    std::size_t row_bytes = 0;  // by which each row of its answer becomes longer
  };
  // In the order of those who were asked; not yet parsed. Runs once, on the thread of the last
  // answer. kResourceExhausted: the answer was left out.
  using Done = std::function<void(std::vector<absl::StatusOr<std::string>>)>;

  // `asked`: at least one. `type`: of their answers.
  ListAnswers(const std::vector<Asked>& asked, const google::protobuf::Descriptor* type,
              const Limits& limits, Done done);

  void Take(std::size_t place, const absl::Status& status, EngineReply reply)
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Entry {
    Asked asked;
    std::size_t bytes = 0;  // as it becomes
    std::size_t parts = 0;
    std::size_t weight = 0;  // of bytes and parts together
    absl::StatusOr<std::string> answer;
    std::shared_ptr<const void> room;
  };

  void LeaveOutLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const google::protobuf::Descriptor* const type_;
  const Limits limits_;
  const Done done_;
  Mutex mutex_;
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mutex_);
  std::size_t missing_ ABSL_GUARDED_BY(mutex_);
  std::size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::size_t parts_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SUPERVISOR_LIST_ANSWERS_H_
