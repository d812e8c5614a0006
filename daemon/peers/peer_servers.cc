#include "daemon/peers/peer_servers.h"

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_posix.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/logging/log.h"
#include "daemon/peers/peer_channel.h"
#include "daemon/rpc/grpc_deadline.h"

namespace ringd {

class PeerServers::Service final : public v1::Peer::CallbackService {
 public:
  explicit Service(const Accept* accept) : accept_(accept) {}
  using v1::Peer::CallbackService::Job;  // the synchronous form is not meant to be hidden
  Reactor* Job(grpc::CallbackServerContext* context) override { return (*accept_)(context); }

 private:
  const Accept* const accept_;
};

PeerServers::PeerServers(GrpcPeerNetworkOptions options, Accept accept)
    : options_(options), accept_(std::move(accept)) {}

PeerServers::~PeerServers() { Shutdown(Clock::now()); }

const grpc::ResourceQuota& PeerServers::QuotaOf(uid_t user) {
  MutexLock lock(mutex_);
  std::unique_ptr<grpc::ResourceQuota>& quota = quotas_[user];
  if (quota == nullptr) {
    quota = std::make_unique<grpc::ResourceQuota>(absl::StrCat("nodes of uid ", user));
    quota->Resize(options_.max_buffered_bytes);
  }
  return *quota;
}

void PeerServers::AddConnection(uid_t user, UniqueFd socket) {
  const grpc::ResourceQuota& quota = QuotaOf(user);
  MutexLock lock(mutex_);
  if (shut_down_) return;
  Entry& entry = entries_[user];
  if (entry.server == nullptr) {
    entry.service = std::make_unique<Service>(&accept_);
    grpc::ServerBuilder builder;
    ConfigurePeerServer(options_, quota, builder);
    builder.RegisterService(entry.service.get());
    entry.server = builder.BuildAndStart();
    if (entry.server == nullptr) {
      entries_.erase(user);
      return LogError("a gRPC server for other nodes did not start");
    }
  }
  grpc::AddInsecureChannelFromFd(entry.server.get(), socket.Release());
}

void PeerServers::Shutdown(Clock::time_point deadline) {
  std::map<uid_t, Entry> entries;
  {
    MutexLock lock(mutex_);
    shut_down_ = true;
    std::swap(entries, entries_);
  }
  for (const auto& [user, entry] : entries) {
    entry.server->Shutdown(ToGrpcDeadline(deadline));
    entry.server->Wait();
  }
}

}  // namespace ringd
