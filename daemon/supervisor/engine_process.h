// An engine as the supervisor sees it: a child process, from its start until it is reaped.
#ifndef RINGD_DAEMON_SUPERVISOR_ENGINE_PROCESS_H_
#define RINGD_DAEMON_SUPERVISOR_ENGINE_PROCESS_H_

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/processes/process_end.h"
#include "daemon/supervisor/engine_program.h"
#include "proto/base/clock.h"
#include "proto/base/unique_fd.h"

namespace ringd {

// How an engine ended. A core is never dumped behind the engine's walls; before, it may be.
struct EngineEnd {
  ProcessExit exit;
  bool dumped_core = false;
};

// "was killed by signal 9 (Killed)", "was killed by signal 6 (Aborted) and dumped core", "exited
// with code 1".
std::string DescribeEngineEnd(const EngineEnd& end);

// Thread safety: none, one thread at a time. No method waits, but Start for the kernel to load the
//   program, and the destructor for kEndPatience at most.
// Ownership: of the process, which does not outlive this and leaves no zombie, unless the kernel
//   does not let go of it; that is logged.
class EngineProcess {
 public:
  // How long a killed engine may take to end. Memory that it shares with a device may keep it.
  static constexpr std::chrono::milliseconds kEndPatience{2000};

  // The channel's descriptor in the engine.
  static constexpr int kChannelDescriptor = 3;

  // Runs `program` with these arguments after its name. It has an empty standard input, `channel`
  // as descriptor 3, and a socket as standard output and standard error that refuses what it has no
  // room for, and so never holds it up. It has no other descriptor of this process but the program
  // (kProgramDescriptor, which it closes), no signal blocked or ignored, and stays in the process
  // group of this process.
  // `channel` remains the caller's, who closes it so that the engine's end is seen.
  //   Called on a thread that lasts as long as this process: the kernel kills ringd-engine when the
  //   thread that started it ends (daemon/engine_process/walls.h).
  //   As Spawn. The message begins with "the engine can't be started: ".
  static absl::StatusOr<std::unique_ptr<EngineProcess>> Start(
      const EngineProgram& program, const std::vector<std::string>& arguments, int channel);
  ~EngineProcess();  // End, and waits until it has been reaped
  EngineProcess(const EngineProcess&) = delete;
  EngineProcess& operator=(const EngineProcess&) = delete;

  pid_t pid() const { return pid_; }
  // Readable when it has ended.
  int pidfd() const { return pidfd_.get(); }
  // What it writes to standard output and error, for EngineLogs; once.
  UniqueFd TakeLog() { return std::move(log_); }

  // Kills it. Idempotent; of no effect after its end. Reap says when it has ended. The destructor
  // waits for kEndPatience from the first time on.
  void End() noexcept;

  // True if it has ended; from then on end() is set and no zombie is left.
  bool Reap() noexcept;
  // It was killed longer than kEndPatience ago, and the kernel does not let go of it: a driver's
  // call may keep it for ever.
  bool IsStuck(Clock::time_point now) noexcept {
    return killed_at_.has_value() && now - *killed_at_ >= kEndPatience && !Reap();
  }
  const std::optional<EngineEnd>& end() const { return end_; }

 private:
  EngineProcess(pid_t pid, UniqueFd pidfd, UniqueFd log);

  const pid_t pid_;
  const UniqueFd pidfd_;
  UniqueFd log_;
  std::optional<Clock::time_point> killed_at_;
  std::optional<EngineEnd> end_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SUPERVISOR_ENGINE_PROCESS_H_
