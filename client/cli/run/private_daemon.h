// A ringd that lives as long as one run.
#ifndef RINGD_CLIENT_CLI_RUN_PRIVATE_DAEMON_H_
#define RINGD_CLIENT_CLI_RUN_PRIVATE_DAEMON_H_

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cli/processes/process.h"
#include "proto/base/clock.h"

namespace ringd::cli {

// Where the ringd program is: RINGD_BINARY, else beside this program, else in PATH.
//   kNotFound: nowhere; the message says where it was looked for.
absl::StatusOr<std::string> FindDaemonBinary(const std::string& asked_for);

struct PrivateDaemonOptions {
  std::string binary;
  std::string folder;            // for the socket and the ready file; short
  std::string state_folder;      // for what it learns
  std::string log_file;          // takes all that it writes
  std::string cluster_key_file;  // of the ringds of the run
  std::string node_name;         // empty: the host's name
  int ranks = 1;                 // that will attach
};

// Thread safety: one thread.
// Ownership: owns the process; the destructor kills one that was not stopped.
class PrivateDaemon {
 public:
  // Starts the process without waiting for it.
  static absl::StatusOr<std::unique_ptr<PrivateDaemon>> Start(const PrivateDaemonOptions& options);
  ~PrivateDaemon();

  // Waits until it serves. Error: it ended, or the deadline passed; the message has its last words.
  //   kCancelled: `interrupted` became true.
  absl::Status WaitUntilReady(Clock::time_point deadline, const std::function<bool()>& interrupted);

  pid_t pid() const noexcept { return pid_; }
  const std::string& name() const noexcept { return name_; }
  const std::string& socket() const noexcept { return socket_; }
  const std::string& peer_address() const noexcept { return peer_address_; }  // once ready

  // How it ended, if it has ended by itself.
  std::optional<ProcessEnd> Ended() const;
  // The last lines of its log.
  std::string LogTail() const;

  // Asks it to end; Stop then waits for that until the deadline, and kills it if it takes longer.
  void RequestStop();
  void Stop(Clock::time_point deadline);

 private:
  // What to add to why it has not started: its last lines, or that there are none, and why.
  std::string LastWords() const;
  PrivateDaemon(const PrivateDaemonOptions& options, pid_t pid);

  const pid_t pid_;
  const std::string name_;
  const std::string socket_;
  const std::string ready_file_;
  const std::string log_file_;
  std::string peer_address_;
  bool stopped_ = false;
};

}  // namespace ringd::cli

#endif  // RINGD_CLIENT_CLI_RUN_PRIVATE_DAEMON_H_
