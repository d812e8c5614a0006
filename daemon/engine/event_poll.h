// What the sleeping engine is woken by.
#ifndef RINGD_DAEMON_ENGINE_EVENT_POLL_H_
#define RINGD_DAEMON_ENGINE_EVENT_POLL_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "proto/base/clock.h"
#include "proto/base/unique_fd.h"
#include "proto/types/ids.h"

namespace ringd {

enum class EventKind : std::uint8_t {
  kCommands = 1,  // another thread posted something
  kTransport,     // the network backend has work
  kReducers,      // a reducer has finished what the engine asked for in vain
  kFastPath,      // something came for a fast path that is being opened
  kDoorbell,      // a client rang for the sleeping engine
  kHangUp,        // a client's connection ended
  kProcessEnd,    // a client's process ended
  kAlarm,         // the time has come that WakeAt() names
};

struct EngineEvent {
  EventKind kind;
  SessionId session;
};

// One epoll instance, and an alarm clock. Thread safety: the engine thread only.
class EventPoll {
 public:
  EventPoll();

  // Watches `fd`, which must be removed before it is closed. Invalid descriptors are ignored.
  void Add(int fd, EventKind kind, SessionId session = {});
  void Remove(int fd);

  // Ends a wait at `when`, once, and to the microsecond: a timeout is rounded to milliseconds, and the kernel adds
  // a thousandth of it. nullopt: not any more. Without a timer (out of descriptors) nothing ends the wait.
  void WakeAt(std::optional<Clock::time_point> when);

  // Waits at most `timeout` (0: just looks) and returns what happened. The reference holds until the
  // next call.
  const std::vector<EngineEvent>& Wait(std::chrono::milliseconds timeout);

 private:
  UniqueFd epoll_;
  UniqueFd timer_;
  std::optional<Clock::time_point> alarm_;
  std::vector<EngineEvent> events_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_ENGINE_EVENT_POLL_H_
