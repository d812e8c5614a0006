// Notices that an engine stands still, and says in the log what it was doing.
#ifndef RINGD_DAEMON_SUPERVISOR_ENGINE_WATCHDOG_H_
#define RINGD_DAEMON_SUPERVISOR_ENGINE_WATCHDOG_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "daemon/engine/engine_activity.h"
#include "proto/base/clock.h"

namespace ringd {

// The thread that watches engines asks it several times a second. Times that nobody asked for do
// not count: then this whole process was stopped, or had no processor, and the engine is not to
// blame.
//
// An engine of which nothing at all is heard, though its main thread has nothing to do but to tell
// of itself, is stopped, or hangs as a whole, or gets no processor. The last shows in the state
// that the kernel gives it, runnable, and is not to its blame either. Nor is the time in which it
// has told more than ringd has read: its heartbeat may be in there.
//
// Thread safety: one thread at a time.
class EngineWatchdog {
 public:
  // An idle engine's heartbeat grows once a second, and is told once a second.
  static constexpr std::chrono::seconds kPatience{5};
  // Between two looks: more of it is said, and counts as this much.
  static constexpr std::chrono::milliseconds kLongestLook{500};

  // An engine's main thread tells of itself once a second.
  static constexpr std::chrono::milliseconds kSilence{2500};

  // What is known of an engine.
  struct Sight {
    std::uint64_t heartbeat = 0;
    EngineActivity::Moment activity;
    Clock::time_point heard;  // when it last told anything
    bool is_unread = false;   // it has told more since then
    // What the kernel says of its main thread. Asked for only if it has been silent for kSilence.
    bool is_stopped = false;
    bool is_runnable = false;
  };
  struct Word {
    std::string text;
    std::optional<std::uint32_t> communicator;  // of the job concerned
  };
  // What is to be logged now, if anything: once when the engine has stood still for kPatience, and
  // once when it goes on. `name`: "the engine of job 'x' (pid 4711 on node-a)".
  std::optional<Word> Look(const std::string& name, const Sight& sight, Clock::time_point now);
  // For how long it has stood still by now.
  Clock::duration still() const noexcept { return still_; }
  // "has stood still for 5 s while advancing the operations of a job".
  std::string DescribeStill(const Sight& sight, Clock::time_point now) const;

 private:
  std::optional<Clock::time_point> last_look_;
  std::uint64_t heartbeat_ = 0;
  Clock::duration still_{0};
  bool told_ = false;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SUPERVISOR_ENGINE_WATCHDOG_H_
