// A probe as ringd sees it: a child with a deadline, whose output and end are read and never
// trusted.
#ifndef RINGD_DAEMON_GPU_PROBE_PROCESS_H_
#define RINGD_DAEMON_GPU_PROBE_PROCESS_H_

#include <sys/types.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/clock.h"
#include "proto/base/unique_fd.h"

namespace ringd {

// Thread safety: none, one thread at a time. No method waits, but the destructor for kKillPatience
//   at most.
// Ownership: of the process and its group; they don't outlive this, unless the kernel does not let
//   go of them.
class ProbeProcess {
 public:
  // More than this is no findings of a node: then it is killed.
  static constexpr std::size_t kMostOutput = std::size_t{256} << 10;
  // How long a killed process may take to end. A driver that hangs may keep it in the kernel.
  static constexpr std::chrono::milliseconds kKillPatience{1000};

  // Runs `arguments`, the first of which is the program's path, with an empty standard input, this
  // process's environment and no other descriptor of it.
  //   kInternal, kResourceExhausted, kNotFound: it can't be started; the message says why.
  static absl::StatusOr<std::unique_ptr<ProbeProcess>> Start(
      const std::vector<std::string>& arguments, Clock::time_point deadline);
  ~ProbeProcess();
  ProbeProcess(const ProbeProcess&) = delete;
  ProbeProcess& operator=(const ProbeProcess&) = delete;

  // To poll for reading: something has come, or it has ended. -1: no longer.
  std::array<int, 3> descriptors() const;
  // When to look again, if nothing comes.
  Clock::time_point next() const;

  // Reads what has come, and kills it at its deadline. True: it is over, and end() is known.
  bool Advance(Clock::time_point now);

  // Precondition of both: Advance has returned true. Ok: it has returned 0. kDeadlineExceeded: it
  // was killed for its deadline. kAborted: a signal has ended it. kInternal: another exit code, or
  // too much output. The message goes on from "the probe".
  const absl::Status& end() const { return *end_; }
  // It does not end though it was killed.
  bool stuck() const { return is_stuck_; }

  const std::string& output() const { return output_; }
  // The last line of what it wrote to standard error, for messages; empty if there is none.
  std::string LastError() const;
  pid_t pid() const { return pid_; }

 private:
  ProbeProcess() = default;
  void Kill(absl::Status why, Clock::time_point now);
  bool Reap();

  pid_t pid_ = -1;
  UniqueFd process_;
  UniqueFd output_pipe_;
  UniqueFd error_pipe_;
  Clock::time_point started_;
  Clock::time_point deadline_;
  std::string output_;
  std::string errors_;  // the end of them
  std::optional<Clock::time_point> killed_;
  absl::Status why_killed_;
  std::optional<absl::Status> end_;
  bool is_reaped_ = false;
  bool is_stuck_ = false;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_GPU_PROBE_PROCESS_H_
