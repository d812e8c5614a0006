// The gRPC server of one user's connections.
#ifndef RINGD_DAEMON_RPC_USER_SERVER_H_
#define RINGD_DAEMON_RPC_USER_SERVER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "daemon/rpc/node_calls.h"
#include "daemon/rpc/user_calls.h"
#include "proto/base/clock.h"
#include "proto/base/unique_fd.h"

namespace ringd {

// Serves Client, Admin and the standard health service to the processes of one user. Each user has
// a server of its own: so who calls is a fact of the connection, and one user's calls can't take
// the others' memory. A server costs no thread: gRPC's threads serve all of them.
//
// Thread safety: all methods from any thread; no connections after Shutdown.
// Ownership: owns the connections; ringd is borrowed and outlives this.
class UserServer {
 public:
  static absl::StatusOr<std::unique_ptr<UserServer>> Start(NodeCalls* node, const Caller& caller,
                                                           std::shared_ptr<UserCalls> calls);
  // As Shutdown, now. Its calls end when their callers go, whatever ringd does, so it does not
  // take long once it is idle.
  ~UserServer();

  // `socket` is connected and non-blocking. Whoever knows when the connection ends keeps what is
  // returned until then.
  std::shared_ptr<const void> AddConnection(UniqueFd socket);

  // True if nobody keeps a connection any more.
  bool Idle() const noexcept { return connections_.use_count() == 1; }

  void SetServing(bool serving);

  // As LocalServer::Shutdown.
  void Shutdown(Clock::time_point deadline);

 private:
  class Impl;
  explicit UserServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
  // Copies of it are handed out, one for each connection.
  std::shared_ptr<const void> connections_ = std::make_shared<int>();
};

}  // namespace ringd

#endif  // RINGD_DAEMON_RPC_USER_SERVER_H_
