// ringd's one door to other nodes: listens, dials, and carries out the handshakes in both
// directions.
#ifndef RINGD_DAEMON_DOOR_DOOR_H_
#define RINGD_DAEMON_DOOR_DOOR_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/congestion_control.h"
#include "daemon/door/dial.h"
#include "daemon/door/dials.h"
#include "daemon/door/door_reception.h"
#include "daemon/door/door_socket.h"
#include "daemon/door/strangers.h"
#include "daemon/logging/log_limiter.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/base/unique_fd.h"
#include "proto/base/waking_epoll.h"

namespace ringd {

struct DoorOptions {
  std::string address;                // host:port to listen on; port 0: any
  std::string node_name;              // this node's, told to everybody
  std::uint32_t challenge_flags = 0;  // kDoorHasClusterKey
  CongestionControl congestion_control{};
  StrangerLimits limits{};
};

//   door->SetReception(...); door->Start(); ... Dial ...; door->Stop();
//
// One thread, ringd-door, carries all handshakes; nothing that strangers do holds it up, and what
// they may take is bounded: so many connections, so long, so many bytes (strangers.h). Who has
// proved to have the key is handed to the reception of its purpose and is no business of the door's
// any more.
//
// Thread safety: any thread, but Start and Stop one.
// Ownership: receptions are shared. What the `done` of a dial uses must live until it was called or
//   Stop has returned.
class Door {
 public:
  // Listens; nobody is let in before Start. May ask a name server.
  //   kInvalidArgument: no such address. Else what the kernel says.
  static absl::StatusOr<std::unique_ptr<Door>> Open(DoorOptions options);
  ~Door();

  // "host:port" with a numeric host and the real port.
  const std::string& address() const noexcept { return address_; }
  // Listens on another address of this machine, too, with the same port, unless that is done
  // already. `host` is numeric.
  //   What the kernel says.
  absl::Status AlsoListenOn(const std::string& host) ABSL_LOCKS_EXCLUDED(mutex_);

  // In place of the one before. Without one, whoever wants the purpose is told that its subject is
  // not known.
  void SetReception(DoorPurpose purpose, std::shared_ptr<DoorReception> reception) {
    receptions_.Set(purpose, std::move(reception));
  }
  // Tells that a reception may say something else now of those who came too early.
  void Reconsider() ABSL_LOCKS_EXCLUDED(mutex_);
  // Unless another one has taken its place. A call to it that is under way is not waited for.
  void RemoveReception(DoorPurpose purpose, const DoorReception* reception) {
    receptions_.Remove(purpose, reception);
  }
  void Start();
  // Closes the listener, strangers, and what is being dialled, of which nothing more is heard.
  // Idempotent.
  void Stop();

  // For dials that are to be abandoned together.
  std::uint64_t NewGroup() noexcept {
    return next_group_.fetch_add(1, std::memory_order_relaxed);  // only has to be another one
  }
  // Connects to another door; request.done hears how that ends.
  void Dial(DialRequest request) ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends what is being dialled in this group. A `done` that is under way on the door's thread is
  // not waited for.
  void Abandon(std::uint64_t group) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Orders {
    std::vector<DialRequest> dials;
    std::vector<std::uint64_t> abandoned;  // given after all `dials` of the same group
    std::vector<UniqueFd> listeners;       // further ones
    bool reconsider = false;
    bool stop = false;
  };

  Door(DoorOptions options, ListeningSocket listening, WakingEpoll epoll);

  void Run();
  // False: the thread shall end.
  bool FollowOrders(Clock::time_point now);
  bool WatchListeners() noexcept;
  void AcceptAll(int listener, Clock::time_point now);
  // False: nobody waited.
  bool TurnOneAway(int listener, int error, Clock::time_point now);
  void PauseAccepting(Clock::time_point now);
  void ResumeAccepting(Clock::time_point now);
  int MillisecondsToNextDeadline(Clock::time_point now) const;

  const std::string address_;
  const CongestionControl congestion_control_;
  WakingEpoll epoll_;
  // Given up for a moment when there are no others, so that who waits to be accepted is turned away
  // instead of waiting.
  UniqueFd reserve_;

  DoorReceptions receptions_;
  // The thread's own, as soon as it runs.
  std::vector<UniqueFd> listeners_;
  Dials dials_;
  Strangers strangers_;
  Clock::time_point accept_again_ = Clock::time_point::max();  // not max: accepting is paused
  LogLimiter log_limiter_;

  std::atomic<std::uint64_t> next_group_{1};
  Mutex mutex_;
  Orders orders_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> hosts_ ABSL_GUARDED_BY(mutex_);  // on which it listens
  std::thread thread_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_DOOR_DOOR_H_
