// Ends what ringctl has started if ringctl itself is killed.
#ifndef RINGD_CLIENT_CLI_PROCESSES_GUARDIAN_H_
#define RINGD_CLIENT_CLI_PROCESSES_GUARDIAN_H_

#include <sys/types.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "proto/base/unique_fd.h"

namespace ringd::cli {

// A process beside ringctl that knows its process groups and temporary folders. SIGKILL can't be
// caught, and the kernel's parent-death signal reaches children only, not theirs: when ringctl's
// end of the pipe closes, the guardian kills the groups and removes the folders.
//
// Thread safety: one thread.
// Ownership: the destructor ends the guardian without any of that: the owner has tidied up by then.
class Guardian {
 public:
  // Forks. Call it while this process has one thread.
  static absl::StatusOr<std::unique_ptr<Guardian>> Start();
  ~Guardian();

  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;

  void WatchGroup(pid_t group);
  void ForgetGroup(pid_t group);
  // A path of at most 100 bytes.
  void WatchFolder(const std::string& path);
  void ForgetFolder(const std::string& path);

 private:
  Guardian(pid_t pid, UniqueFd pipe);
  void Tell(char what, pid_t group, const std::string& folder) const;

  const pid_t pid_;
  const UniqueFd pipe_;
};

}  // namespace ringd::cli

#endif  // RINGD_CLIENT_CLI_PROCESSES_GUARDIAN_H_
