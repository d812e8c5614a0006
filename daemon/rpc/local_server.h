// The gRPC server of this node: trainers, ringctl, health probes.
#ifndef RINGD_DAEMON_RPC_LOCAL_SERVER_H_
#define RINGD_DAEMON_RPC_LOCAL_SERVER_H_

#include <sys/types.h>

#include <cstddef>
#include <map>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/rpc/node_calls.h"
#include "daemon/rpc/refusing_server.h"
#include "daemon/rpc/user_calls.h"
#include "daemon/rpc/user_server.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/base/unique_fd.h"

namespace ringd {

// Serves Client, Admin and the standard health service on connections that it is given, each user's
// by a server of their own: it listens nowhere itself. Who may connect is decided before, by the
// attach listener.
//
// Thread safety: all methods from any thread; no connections after Shutdown.
// Ownership: owns the connections; ringd is borrowed and outlives this.
// Invariant: the number of threads does not depend on the number of users, connections and calls.
class LocalServer {
 public:
  // Servers of users without connections that are kept, for when they come again.
  static constexpr std::size_t kKeptServers = 16;

  // `limits`: of each user.
  //   What the kernel says.
  static absl::StatusOr<std::unique_ptr<LocalServer>> Start(NodeCalls* node,
                                                            const UserCalls::Limits& limits = {});
  ~LocalServer();

  // `socket` is connected and non-blocking; `caller` is the kernel's word on who is at its other
  // end. Whoever knows when the connection ends keeps what is returned until then. Null: the
  // connection was closed, the log says why.
  std::shared_ptr<const void> AddConnection(UniqueFd socket, const Caller& caller)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // The same, of somebody who is not admitted: every call is answered PERMISSION_DENIED, and gRPC
  // sees no byte of theirs.
  void RefuseConnection(UniqueFd socket);

  // What the health service answers, for the server as a whole and for each of its services. May
  // be called by what answers a call.
  void SetServing(bool serving) ABSL_LOCKS_EXCLUDED(mutex_);

  // Takes no more calls, waits for those under way and cancels what is left at `deadline`.
  // Idempotent.
  void Shutdown(Clock::time_point deadline) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  LocalServer(NodeCalls* node, const UserCalls::Limits& limits,
              std::unique_ptr<RefusingServer> refusing);
  absl::StatusOr<UserServer*> ServerOf(const Caller& caller) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::shared_ptr<UserCalls> CallsOf(uid_t user) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<std::unique_ptr<UserServer>> TakeIdle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  NodeCalls* const node_;
  const UserCalls::Limits limits_;
  const std::unique_ptr<RefusingServer> refusing_;
  Mutex mutex_;
  std::map<Caller, std::unique_ptr<UserServer>> servers_ ABSL_GUARDED_BY(mutex_);
  // Of users who have a server, or calls that a server has left behind.
  std::map<uid_t, std::weak_ptr<UserCalls>> calls_ ABSL_GUARDED_BY(mutex_);
  bool serving_ ABSL_GUARDED_BY(mutex_) = true;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_RPC_LOCAL_SERVER_H_
