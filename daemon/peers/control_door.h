// What the control streams need of the outside: connections to nodes of their jobs, proven at a
// door.
#ifndef RINGD_DAEMON_PEERS_CONTROL_DOOR_H_
#define RINGD_DAEMON_PEERS_CONTROL_DOOR_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "daemon/peers/peer_network.h"
#include "proto/base/clock.h"
#include "proto/base/unique_fd.h"
#include "proto/types/ids.h"

namespace ringd {

// Thread safety: any thread; Start and Stop once each. No method blocks but Stop, for callbacks
//   that are under way.
// Ownership: sockets are the receiver's; they are non-blocking, and nothing behind the handshake
//   has been read from them.
class ControlDoor {
 public:
  // Called on a thread of the door's; they must return soon, and may call any method but Stop.
  struct Handlers {
    // A node of the job has come. Call Release(user) when the connection has ended. `from` names it
    // and its address, for messages.
    std::function<void(ExpectationId, uid_t user, std::string from, UniqueFd socket)> admitted;
    // One wanted to come and was refused.
    std::function<void(ExpectationId, RefusedNode)> refused;
  };
  // The caller's number for a dial, never used again.
  using DialId = StrongId<struct ControlDialIdTag, std::uint64_t>;
  using DialDone = std::function<void(absl::StatusOr<UniqueFd>)>;

  virtual ~ControlDoor() = default;

  // Before it nobody is let in.
  virtual void Start(Handlers handlers) = 0;

  // As in PeerNetwork.
  virtual ExpectationId Expect(ExpectedJob job) = 0;
  virtual void StopExpecting(ExpectationId job) = 0;
  virtual void Release(uid_t user) = 0;

  // Looks the coordinator's name up and dials until `deadline`. Calls `done` once, as a handler or
  // at once, unless it is abandoned before.
  //   As DialRequest::done; kInvalidArgument also if host_port is no address; kResourceExhausted:
  //   too many are under way.
  virtual void Dial(DialId id, CoordinatorAddress coordinator, Clock::time_point deadline,
                    DialDone done) = 0;
  // `done` may be under way. Of no effect on one that has ended.
  virtual void Abandon(DialId id) = 0;

  // No `done` is called any more, and no handler, unless a subclass says until when.
  virtual void Stop() = 0;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_PEERS_CONTROL_DOOR_H_
