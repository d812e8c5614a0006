// What the sleeping engine is woken by.
#ifndef RINGD_DAEMON_ENGINE_EVENT_POLL_H_
#define RINGD_DAEMON_ENGINE_EVENT_POLL_H_

#include <chrono>
#include <cstdint>
#include <vector>

#include "proto/base/unique_fd.h"
#include "proto/types/ids.h"

namespace ringd {

enum class EventKind : std::uint8_t {
  kCommands = 1,  // another thread posted something
  kTransport,     // the network backend has work
  kReducers,      // a reducer has finished what the engine asked for in vain
  kRankExchange,  // something came for a rank exchange that is being opened
  kDoorbell,      // a client rang for the sleeping engine
  kHangUp,        // a client's connection ended
  kProcessEnd,    // a client's process ended
};

struct EngineEvent {
  EventKind kind;
  SessionId session;
};

// One epoll instance. Thread safety: the progress thread only.
class EventPoll {
 public:
  EventPoll();

  // Watches `fd`, which must be removed before it is closed. Invalid descriptors are ignored.
  void Add(int fd, EventKind kind, SessionId session = {});
  void Remove(int fd);

  // Waits at most `timeout` (0: just looks) and returns what happened. The reference holds until
  // the next call.
  const std::vector<EngineEvent>& Wait(std::chrono::milliseconds timeout);

 private:
  UniqueFd epoll_;
  std::vector<EngineEvent> events_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_ENGINE_EVENT_POLL_H_
