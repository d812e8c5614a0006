// The connections that other nodes have opened to here: from the door to the call, and from the
// call's end to their own.
#ifndef RINGD_DAEMON_PEERS_NODE_CONNECTIONS_H_
#define RINGD_DAEMON_PEERS_NODE_CONNECTIONS_H_

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "daemon/peers/peer_network.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/base/unique_fd.h"
#include "proto/types/ids.h"

namespace ringd {

using ConnectionId = StrongId<struct ConnectionIdTag, std::uint64_t>;

// gRPC serves a connection for as long as its other end likes: calls that are refused keep it busy.
// So each has a descriptor of ours beside gRPC's, by which it is shut down when its time is over,
// and it counts until gRPC has closed its own one.
//
// Thread safety: any thread. `released` is called on the one that calls Add or Sweep, without a
//   lock.
// Ownership: owns a second descriptor of each connection.
// Invariant: each connection that was added is released once, after both of its descriptors were
//   closed; or never, if it is there at the end.
// Trust: the other end has a job's key and may do as it likes. It may even use the token of another
//   connection of its own. Each connection has its own time all the same.
class NodeConnections {
 public:
  struct Patience {
    Clock::duration call{};  // from the door to the call
    Clock::duration
        close{};  // from the call's end to the other side's closing, in which its status arrives
  };
  struct Arrival {
    std::string token;  // the call's
    ExpectationId job;
    uid_t user = 0;
    std::string from;
    UniqueFd socket;
  };
  // A call that has begun.
  struct Begun {
    ConnectionId connection;
    ExpectationId job;
    std::string from;
  };
  using Released = std::function<void(uid_t user)>;

  NodeConnections(Patience patience, Released released)
      : patience_(patience), released_(std::move(released)) {}

  // The descriptor that gRPC is to own. Invalid: there are no more descriptors, and the connection
  // has been closed and released.
  UniqueFd Add(Arrival arrival, Clock::time_point now) ABSL_LOCKS_EXCLUDED(mutex_);
  // The call with this token has begun; until End() the connection may stay. Nothing if none has
  // come in for it, or too long ago.
  std::optional<Begun> Begin(const std::string& token) ABSL_LOCKS_EXCLUDED(mutex_);
  // The call has ended.
  void End(ConnectionId connection, Clock::time_point now) ABSL_LOCKS_EXCLUDED(mutex_);
  // Shuts down what is to be shut down by now, and releases what gRPC has closed. False: nobody's
  // time runs.
  bool Sweep(Clock::time_point now) ABSL_LOCKS_EXCLUDED(mutex_);
  // gRPC has closed them all.
  void Clear() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Connection {
    std::string token;
    ExpectationId job;
    uid_t user = 0;
    std::string from;
    UniqueFd own;              // the same socket as `served`
    int served = -1;           // gRPC's; perhaps another file's number by now
    std::uint64_t cookie = 0;  // the socket's
    // When it is shut down; max: not while its call lasts.
    Clock::time_point due;
    bool shut = false;
  };

  const Patience patience_;
  const Released released_;
  Mutex mutex_;
  std::uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<ConnectionId, Connection> connections_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, ConnectionId> tokens_ ABSL_GUARDED_BY(mutex_);  // of calls that may begin
};

}  // namespace ringd

#endif  // RINGD_DAEMON_PEERS_NODE_CONNECTIONS_H_
