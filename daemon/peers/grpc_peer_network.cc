#include "daemon/peers/grpc_peer_network.h"

#include <grpcpp/server_builder.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/peers/peer_channel.h"
#include "daemon/peers/peer_stream.h"
#include "proto/base/mutex.h"
#include "proto/rpc/peer.grpc.pb.h"

namespace ringd {
namespace {

// Long after every stream was cut.
constexpr std::chrono::seconds kCutPatience{10};

// Turns a stream away.
class Rejection final : public grpc::ServerBidiReactor<v1::NodeMessage, v1::CoordinatorMessage> {
 public:
  explicit Rejection(const absl::Status& why) { Finish(ToGrpcTrailer(why)); }
  void OnDone() override { delete this; }
};

}  // namespace

// Owns the streams by number until each has had its last event.
class GrpcPeerNetwork::Impl final : public PeerStreamOwner {
 public:
  explicit Impl(GrpcPeerNetworkOptions options) : options_(options), service_(this) {}

  class Service final : public v1::Peer::CallbackService {
   public:
    explicit Service(Impl* impl) : impl_(impl) {}
    using v1::Peer::CallbackService::Job;  // the synchronous form is not meant to be hidden
    grpc::ServerBidiReactor<v1::NodeMessage, v1::CoordinatorMessage>* Job(
        grpc::CallbackServerContext* context) override {
      return impl_->Accept(context);
    }

   private:
    Impl* const impl_;
  };

  grpc::ServerBidiReactor<v1::NodeMessage, v1::CoordinatorMessage>* Accept(
      grpc::CallbackServerContext* context);
  StreamId Connect(const std::string& host_port, Clock::time_point deadline);
  void Remove(StreamId id) override;
  void Shutdown(Clock::time_point deadline);

  std::shared_ptr<NodeStream> FindNode(StreamId id) {
    MutexLock lock(mutex_);
    const auto found = node_streams_.find(id);
    return found == node_streams_.end() ? nullptr : found->second;
  }
  std::shared_ptr<CoordinatorStream> FindCoordinator(StreamId id) {
    MutexLock lock(mutex_);
    const auto found = coordinator_streams_.find(id);
    return found == coordinator_streams_.end() ? nullptr : found->second;
  }
  void SetEvents(PeerEvents* events) {
    MutexLock lock(mutex_);
    events_ = events;
  }

  const GrpcPeerNetworkOptions& options() const { return options_; }
  Service& service() { return service_; }

 private:
  PeerStreamContext ContextLocked(StreamId id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return {this, events_, id, options_.max_outgoing_bytes, options_.close_grace};
  }
  template <typename Visit>
  void ForEachStream(Visit visit);
  bool WaitUntilEmpty(Clock::time_point deadline);

  const GrpcPeerNetworkOptions options_;
  Service service_;

  Mutex mutex_;
  CondVar emptied_;
  PeerEvents* events_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool shut_down_ ABSL_GUARDED_BY(mutex_) = false;
  std::uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<StreamId, std::shared_ptr<NodeStream>> node_streams_ ABSL_GUARDED_BY(mutex_);
  std::map<StreamId, std::shared_ptr<CoordinatorStream>> coordinator_streams_
      ABSL_GUARDED_BY(mutex_);
  // The first channel, kept for the network's life: the threads that run all callbacks belong to the
  // channels together and are joined with the last one, which must not happen on one of themselves.
  std::shared_ptr<grpc::Channel> anchor_ ABSL_GUARDED_BY(mutex_);
};

grpc::ServerBidiReactor<v1::NodeMessage, v1::CoordinatorMessage>* GrpcPeerNetwork::Impl::Accept(
    grpc::CallbackServerContext* context) {
  std::shared_ptr<NodeStream> stream;
  {
    MutexLock lock(mutex_);
    if (events_ == nullptr || shut_down_) {
      return new Rejection(absl::UnavailableError(shut_down_ ? "this ringd is shutting down"
                                                             : "this ringd is not ready yet"));
    }
    const StreamId id(++last_id_);
    stream = std::make_shared<NodeStream>(ContextLocked(id), context);
    node_streams_.emplace(id, stream);
  }
  stream->Begin();
  return stream.get();  // the map's share keeps it until OnDone
}

StreamId GrpcPeerNetwork::Impl::Connect(const std::string& host_port, Clock::time_point deadline) {
  std::shared_ptr<CoordinatorStream> stream;
  StreamId id;
  {
    MutexLock lock(mutex_);
    id = StreamId(++last_id_);
    if (events_ == nullptr || shut_down_) return id;
    std::shared_ptr<grpc::Channel> channel = OpenPeerChannel(options_, host_port);
    if (anchor_ == nullptr) anchor_ = channel;
    stream = std::make_shared<CoordinatorStream>(ContextLocked(id), host_port, std::move(channel));
    coordinator_streams_.emplace(id, stream);
  }
  stream->Begin(deadline);
  return id;
}

void GrpcPeerNetwork::Impl::Remove(StreamId id) {
  MutexLock lock(mutex_);
  node_streams_.erase(id);
  coordinator_streams_.erase(id);
  if (node_streams_.empty() && coordinator_streams_.empty()) emptied_.NotifyAll();
}

template <typename Visit>
void GrpcPeerNetwork::Impl::ForEachStream(Visit visit) {
  std::vector<std::shared_ptr<NodeStream>> nodes;
  std::vector<std::shared_ptr<CoordinatorStream>> coordinators;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, stream] : node_streams_) nodes.push_back(stream);
    for (const auto& [id, stream] : coordinator_streams_) coordinators.push_back(stream);
  }
  for (const auto& stream : nodes) visit(*stream);
  for (const auto& stream : coordinators) visit(*stream);
}

bool GrpcPeerNetwork::Impl::WaitUntilEmpty(Clock::time_point deadline) {
  MutexLock lock(mutex_);
  while (!node_streams_.empty() || !coordinator_streams_.empty()) {
    if (!emptied_.WaitUntil(mutex_, deadline) && Clock::now() >= deadline) {
      return node_streams_.empty() && coordinator_streams_.empty();
    }
  }
  return true;
}

void GrpcPeerNetwork::Impl::Shutdown(Clock::time_point deadline) {
  {
    MutexLock lock(mutex_);
    shut_down_ = true;
  }
  ForEachStream(
      [](auto& stream) { stream.Close(absl::CancelledError("this ringd is shutting down")); });
  if (WaitUntilEmpty(deadline)) return;
  ForEachStream([](auto& stream) { stream.Cut(); });
  if (WaitUntilEmpty(Clock::now() + kCutPatience)) return;
  // gRPC ends every cancelled call; going on would free what it still uses.
  std::fputs("ringd: gRPC did not end cancelled streams\n", stderr);
  std::abort();
}

GrpcPeerNetwork::GrpcPeerNetwork(GrpcPeerNetworkOptions options)
    : impl_(std::make_unique<Impl>(options)) {}

GrpcPeerNetwork::~GrpcPeerNetwork() { Shutdown(Clock::now()); }

void GrpcPeerNetwork::ConfigureServer(grpc::ServerBuilder& builder) {
  ConfigurePeerServer(impl_->options(), builder);
  builder.RegisterService(&impl_->service());
}

void GrpcPeerNetwork::Shutdown(Clock::time_point deadline) { impl_->Shutdown(deadline); }

void GrpcPeerNetwork::SetEvents(PeerEvents* events) { impl_->SetEvents(events); }

StreamId GrpcPeerNetwork::ConnectToCoordinator(const std::string& host_port,
                                               Clock::time_point deadline) {
  return impl_->Connect(host_port, deadline);
}

void GrpcPeerNetwork::Send(StreamId stream, v1::NodeMessage message) {
  if (const auto found = impl_->FindCoordinator(stream)) found->Send(std::move(message));
}

void GrpcPeerNetwork::Send(StreamId stream, v1::CoordinatorMessage message) {
  if (const auto found = impl_->FindNode(stream)) found->Send(std::move(message));
}

void GrpcPeerNetwork::Close(StreamId stream, absl::Status reason) {
  if (const auto found = impl_->FindNode(stream)) {
    found->Close(std::move(reason));
  } else if (const auto opened = impl_->FindCoordinator(stream)) {
    opened->Close(std::move(reason));
  }
}

}  // namespace ringd
