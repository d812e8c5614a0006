// What the engines of this node print, put into the log of the supervisor.
#ifndef RINGD_DAEMON_SUPERVISOR_ENGINE_LOGS_H_
#define RINGD_DAEMON_SUPERVISOR_ENGINE_LOGS_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "daemon/sessions/nudges.h"
#include "daemon/supervisor/engine_log_reader.h"
#include "proto/base/mutex.h"
#include "proto/base/unique_fd.h"
#include "proto/base/waking_epoll.h"

namespace ringd {

// One thread, ringd-logs, reads the sockets of all engines; EngineLogReader says how their lines
// come out. It gives way to the threads that serve. While the log's file takes no lines, engines go
// on and drop theirs.
//
// Thread safety: any thread. All methods wait for the log's file as Log does, and Finish reads a
//   mebibyte at most.
// Ownership: of the sockets.
// Trust: an engine may be a trainer's. A pipe has one lock for both its ends, which a writer whose
//   page does not come keeps for ever; a socket's reader has one of its own.
class EngineLogs {
 public:
  struct Ends {
    UniqueFd reader;
    UniqueFd writer;
  };
  // For an engine's standard output and error, and for Add. Neither blocks.
  //   What the kernel says.
  static absl::StatusOr<Ends> MakeEnds();

  //   What the kernel says.
  static absl::StatusOr<std::unique_ptr<EngineLogs>> Create();
  ~EngineLogs();  // finishes all that are left
  EngineLogs(const EngineLogs&) = delete;
  EngineLogs& operator=(const EngineLogs&) = delete;

  // Reads this end as that of the engine with this pid. Returns a number that stands for it and is
  // never used again: pids are.
  std::uint64_t Add(pid_t pid, UniqueFd reader) ABSL_LOCKS_EXCLUDED(mutex_);
  // From now on it serves this user's job. All of his engines have one limit of lines together.
  void BelongsTo(std::uint64_t log, uid_t uid, const std::string& job) ABSL_LOCKS_EXCLUDED(mutex_);

  // Once an engine has ended: logs what it left and forgets it. Returns its last line
  // as LastLine does.
  std::string Finish(std::uint64_t log) ABSL_LOCKS_EXCLUDED(mutex_);

  // EngineLogReader::last_line() of what has been read so far; empty if `log` is not here.
  std::string LastLine(std::uint64_t log) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Source {
    UniqueFd socket;
    EngineLogReader reader;
  };

  explicit EngineLogs(WakingEpoll epoll);
  void Run();
  void ReadSome(std::uint64_t log, Nudges& nudges) ABSL_LOCKS_EXCLUDED(mutex_);
  // True at the end. `nudges`: this thread's.
  static bool Read(Source& source, std::size_t most, Nudges& nudges);
  void StopReading(Source& source, Nudges& nudges);

  const WakingEpoll epoll_;  // woken at the end
  Mutex mutex_;
  std::map<uid_t, LogLimiter> users_ ABSL_GUARDED_BY(mutex_);
  std::map<std::uint64_t, Source> sources_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t next_ ABSL_GUARDED_BY(mutex_) = 1;
  std::thread thread_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SUPERVISOR_ENGINE_LOGS_H_
