// What several engines answer to one list, within what ringd can afford.
#ifndef RINGD_DAEMON_SUPERVISOR_LIST_ANSWERS_H_
#define RINGD_DAEMON_SUPERVISOR_LIST_ANSWERS_H_

#include <google/protobuf/descriptor.h>
#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/base/mutex.h"

namespace ringd {

// Counts what becomes an object of its own when `bytes` are parsed as a `type`: messages and
// strings, which take much more memory than bytes on the wire. Stops beyond `most`. What is
// malformed is counted up to there.
std::size_t CountParts(const google::protobuf::Descriptor& type, absl::string_view bytes,
                       std::size_t most);

// Gathers answers, and keeps as many of them as fit. If all don't, the longest answer of the user
// with most goes, again and again: nobody makes others' jobs disappear from an operator's list.
//
// Thread safety: any thread.
// Ownership: shared by the calls that it waits for.
// Invariant: what it holds never exceeds the limits by more than one answer.
class ListAnswers {
 public:
  struct Limits {
    std::size_t bytes = std::size_t{40} << 20;  // gRPC's messages have at most 64 MiB
    std::size_t parts = 2'000'000;
  };
  // In the order of those who were asked; not yet parsed. Runs once, on the thread of the last
  // answer. kResourceExhausted: the answer was left out.
  using Done = std::function<void(std::vector<absl::StatusOr<std::string>>)>;

  // `users`: of the engines that are asked, at least one. `type`: of their answers.
  ListAnswers(const std::vector<uid_t>& users, const google::protobuf::Descriptor* type,
              const Limits& limits, Done done);

  void Take(std::size_t place, const absl::Status& status, std::string bytes)
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Entry {
    uid_t user = 0;
    std::size_t parts = 0;
    std::size_t weight = 0;  // of bytes and parts together
    absl::StatusOr<std::string> answer;
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
