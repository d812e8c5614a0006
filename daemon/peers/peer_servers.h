// The gRPC servers of connections that other nodes have opened to here.
#ifndef RINGD_DAEMON_PEERS_PEER_SERVERS_H_
#define RINGD_DAEMON_PEERS_PEER_SERVERS_H_

#include <grpcpp/resource_quota.h>
#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "daemon/peers/grpc_peer_network.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/base/unique_fd.h"
#include "proto/rpc/peer.grpc.pb.h"

namespace ringd {

// One for each user whose jobs other nodes take part in; none of them listens anywhere, and none
// costs a thread. What a user's jobs hold, in both directions, counts against one quota.
//
// Internal to daemon/peers.
//
// Thread safety: any thread.
class PeerServers {
 public:
  using Reactor = grpc::ServerBidiReactor<v1::NodeMessage, v1::CoordinatorMessage>;
  using Accept = std::function<Reactor*(grpc::CallbackServerContext*)>;

  // `accept` is called on gRPC's threads.
  PeerServers(GrpcPeerNetworkOptions options, Accept accept);
  ~PeerServers();  // as Shutdown, at once

  const grpc::ResourceQuota& QuotaOf(uid_t user) ABSL_LOCKS_EXCLUDED(mutex_);
  // Serves this connection, which is non-blocking. After Shutdown it is closed.
  void AddConnection(uid_t user, UniqueFd socket) ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends what is left at `deadline`.
  void Shutdown(Clock::time_point deadline) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  class Service;
  struct Entry {
    std::unique_ptr<Service> service;  // the server borrows it and goes first
    std::unique_ptr<grpc::Server> server;
  };

  const GrpcPeerNetworkOptions options_;
  const Accept accept_;
  Mutex mutex_;
  bool shut_down_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<uid_t, std::unique_ptr<grpc::ResourceQuota>> quotas_ ABSL_GUARDED_BY(mutex_);
  std::map<uid_t, Entry> entries_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ringd

#endif  // RINGD_DAEMON_PEERS_PEER_SERVERS_H_
