// The lines of one engine's log, as they come out of its socket and go into ours.
#ifndef RINGD_DAEMON_SUPERVISOR_ENGINE_LOG_READER_H_
#define RINGD_DAEMON_SUPERVISOR_ENGINE_LOG_READER_H_

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "daemon/logging/log_limiter.h"
#include "proto/base/clock.h"

namespace ringd {

// Records keep their level, fields and time; all other lines, which are what vendors' libraries and
// the C library print, become errors. Each is marked with the engine's pid. All of it is input:
// lines are cut at kMaxEngineLogLine, those above kLines in kPeriod, of this engine or of all of
// its user's, are counted and left out, and a time that can't be true is replaced.
//
// Thread safety: none, one thread at a time. Writes with Log, and waits as that does.
class EngineLogReader {
 public:
  static constexpr std::uint32_t kLines = 1000;
  static constexpr std::chrono::seconds kPeriod{10};
  // How much of a line last_line() shows.
  static constexpr std::size_t kMostShown = 400;

  explicit EngineLogReader(pid_t engine) : engine_(engine) {}

  // It serves this job. `of_user`: what all engines of its user share; outlives this.
  void BelongsTo(std::string job, LogLimiter* of_user) {
    job_ = std::move(job);
    of_user_ = of_user;
  }

  // Logs the lines that these bytes complete.
  void Take(absl::string_view bytes, Clock::time_point now);
  // Logs what has no end yet, and how many lines were left out. Idempotent.
  void End(Clock::time_point now);

  // The message of the last error, also of one that was left out; lines of a backtrace and those
  // without a letter don't count, so that an assertion remains. Without control characters. Empty:
  // there was none.
  const std::string& last_line() const { return last_line_; }

 private:
  void TakeLine(absl::string_view line, Clock::time_point now);
  void Remember(absl::string_view message);
  void TellHeldBack();

  const pid_t engine_;
  LogLimiter limiter_{kLines, kPeriod};
  LogLimiter* of_user_ = nullptr;  // null, and no job: it stands ready
  std::string job_;
  std::uint64_t held_back_ = 0;  // and not told yet
  std::string partial_;          // the begin of a line, at most kMaxEngineLogLine
  std::string last_line_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SUPERVISOR_ENGINE_LOG_READER_H_
