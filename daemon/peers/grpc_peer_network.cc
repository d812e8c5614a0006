#include "daemon/peers/grpc_peer_network.h"

#include <grpcpp/channel.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/peers/coordinator_dial.h"
#include "daemon/peers/expected_jobs.h"
#include "daemon/peers/name_resolver.h"
#include "daemon/peers/node_connections.h"
#include "daemon/peers/peer_channel.h"
#include "daemon/peers/peer_servers.h"
#include "daemon/peers/peer_stream.h"
#include "daemon/peers/sweep_alarm.h"
#include "proto/base/mutex.h"
#include "proto/rpc/peer.grpc.pb.h"

namespace ringd {
namespace {

// Long after every stream was cut.
constexpr std::chrono::seconds kCutPatience{10};
// How soon after gRPC has closed a connection its place is free.
constexpr std::chrono::milliseconds kSweepInterval{100};

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
  Impl(Door* door, GrpcPeerNetworkOptions options);
  ~Impl() override { door_->RemoveReception(DoorPurpose::kControl, expected_.get()); }

  StreamId Connect(CoordinatorAddress coordinator, Clock::time_point deadline);
  void Close(StreamId id, absl::Status reason);
  void Remove(StreamId id) override;
  void Shutdown(Clock::time_point deadline);

  std::shared_ptr<NodeStream> FindNode(StreamId id) {
    MutexLock lock(mutex_);
    const auto found = node_streams_.find(id);
    return found == node_streams_.end() ? nullptr : found->second.stream;
  }
  std::shared_ptr<CoordinatorStream> FindCoordinator(StreamId id) {
    MutexLock lock(mutex_);
    const auto found = coordinator_streams_.find(id);
    return found == coordinator_streams_.end() ? nullptr : found->second.stream;
  }
  void SetEvents(PeerEvents* events) {
    MutexLock lock(mutex_);
    events_ = events;
  }
  ExpectationId Expect(ExpectedJob job) {
    const ExpectationId id = expected_->Add(std::move(job));
    door_->Reconsider();
    return id;
  }
  ExpectedJobs& expected() { return *expected_; }
  void RefuseNewJobs() {
    expected_->Drain();
    door_->Reconsider();
  }

 private:
  struct NodeEntry {
    std::shared_ptr<NodeStream> stream;
    ConnectionId connection;
  };
  struct CoordinatorEntry {
    std::shared_ptr<CoordinatorStream> stream;
    std::shared_ptr<CoordinatorDial> dial;
  };

  void Admit(ExpectationId job, uid_t user, DoorArrival arrival);
  PeerServers::Reactor* Accept(grpc::CallbackServerContext* context);
  void OnDialled(const std::shared_ptr<CoordinatorStream>& stream, uid_t user,
                 absl::StatusOr<DoorConnection> outcome);
  PeerEvents* events() {
    MutexLock lock(mutex_);
    return events_;
  }
  PeerStreamContext ContextLocked(StreamId id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return {this, events_, id, options_.max_outgoing_bytes, options_.close_grace};
  }
  template <typename Visit>
  void ForEachStream(Visit visit);
  bool WaitUntilEmpty(Clock::time_point deadline);

  Door* const door_;
  const GrpcPeerNetworkOptions options_;
  PeerServers servers_;
  const std::shared_ptr<ExpectedJobs> expected_;
  const std::shared_ptr<NodeConnections> connections_;
  const std::shared_ptr<SweepAlarm> sweeps_;

  Mutex mutex_;
  CondVar emptied_;
  PeerEvents* events_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool shut_down_ ABSL_GUARDED_BY(mutex_) = false;
  std::uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<StreamId, NodeEntry> node_streams_ ABSL_GUARDED_BY(mutex_);
  std::map<StreamId, CoordinatorEntry> coordinator_streams_ ABSL_GUARDED_BY(mutex_);
  // The first channel, kept for the network's life: the threads that run all callbacks belong to
  // the channels together and are joined with the last one, which must not happen on one of
  // themselves.
  std::shared_ptr<grpc::Channel> anchor_ ABSL_GUARDED_BY(mutex_);
  NameResolver resolver_;  // stopped before the rest goes
};

GrpcPeerNetwork::Impl::Impl(Door* door, GrpcPeerNetworkOptions options)
    : door_(door),
      options_(options),
      servers_(options, [this](grpc::CallbackServerContext* context) { return Accept(context); }),
      expected_(std::make_shared<ExpectedJobs>(
          ExpectedJobs::Handlers{[this](ExpectationId job, uid_t user, DoorArrival arrival) {
                                   Admit(job, user, std::move(arrival));
                                 },
                                 [this](ExpectationId job, const RefusedNode& node) {
                                   if (PeerEvents* const told = events())
                                     told->OnNodeRefused(job, node);
                                 }})),
      connections_(std::make_shared<NodeConnections>(
          NodeConnections::Patience{options.call_patience, options.hang_up_patience},
          [expected = expected_](uid_t user) { expected->Release(user); })),
      sweeps_(std::make_shared<SweepAlarm>(kSweepInterval, [connections = connections_] {
        return connections->Sweep(Clock::now());
      })) {
  door_->SetReception(DoorPurpose::kControl, expected_);
}

void GrpcPeerNetwork::Impl::Admit(ExpectationId job, uid_t user, DoorArrival arrival) {
  std::string token(AsText(ControlCallToken(arrival.session_key)));
  UniqueFd served = connections_->Add(
      {std::move(token), job, user, std::move(arrival.from), std::move(arrival.socket)},
      Clock::now());
  if (!served.valid()) return;
  servers_.AddConnection(user, std::move(served));
  sweeps_->Start();
}

PeerServers::Reactor* GrpcPeerNetwork::Impl::Accept(grpc::CallbackServerContext* context) {
  const auto shown = context->client_metadata().find(kCallTokenKey);
  std::shared_ptr<NodeStream> stream;
  std::optional<NodeConnections::Begun> begun;
  {
    MutexLock lock(mutex_);
    if (events_ == nullptr || shut_down_) {
      return new Rejection(absl::UnavailableError(shut_down_ ? "this ringd is shutting down"
                                                             : "this ringd is not ready yet"));
    }
    if (shown != context->client_metadata().end()) {
      begun = connections_->Begin(std::string(shown->second.data(), shown->second.size()));
    }
    if (!begun.has_value()) {
      return new Rejection(absl::UnauthenticatedError("no connection of this call came in"));
    }
    const StreamId id(++last_id_);
    stream = std::make_shared<NodeStream>(ContextLocked(id), context);
    node_streams_.emplace(id, NodeEntry{stream, begun->connection});
  }
  stream->Begin(begun->job, std::move(begun->from));
  return stream.get();  // the map's share keeps it until OnDone
}

StreamId GrpcPeerNetwork::Impl::Connect(CoordinatorAddress coordinator,
                                        Clock::time_point deadline) {
  std::shared_ptr<CoordinatorDial> dial;
  StreamId id;
  {
    MutexLock lock(mutex_);
    id = StreamId(++last_id_);
    if (events_ == nullptr || shut_down_) return id;
    auto stream = std::make_shared<CoordinatorStream>(ContextLocked(id), coordinator.host_port);
    const uid_t user = coordinator.uid;
    dial = std::make_shared<CoordinatorDial>(
        door_, &resolver_, std::move(coordinator), options_.door_flags, deadline,
        [this, stream, user](absl::StatusOr<DoorConnection> outcome) {
          OnDialled(stream, user, std::move(outcome));
        });
    coordinator_streams_.emplace(id, CoordinatorEntry{std::move(stream), dial});
  }
  dial->Begin();
  return id;
}

void GrpcPeerNetwork::Impl::OnDialled(const std::shared_ptr<CoordinatorStream>& stream, uid_t user,
                                      absl::StatusOr<DoorConnection> outcome) {
  if (!outcome.ok()) return stream->EndUnconnected(outcome.status());
  std::shared_ptr<grpc::Channel> channel =
      MakePeerChannel(options_, servers_.QuotaOf(user), std::move(outcome->socket));
  {
    MutexLock lock(mutex_);
    if (anchor_ == nullptr) anchor_ = channel;
  }
  stream->Begin(std::move(channel), std::string(AsText(ControlCallToken(outcome->session_key))));
}

void GrpcPeerNetwork::Impl::Close(StreamId id, absl::Status reason) {
  if (const auto node = FindNode(id)) return node->Close(std::move(reason));
  CoordinatorEntry entry;
  {
    MutexLock lock(mutex_);
    const auto found = coordinator_streams_.find(id);
    if (found == coordinator_streams_.end()) return;
    entry = found->second;
  }
  entry.stream->Close(reason);
  entry.dial->Abandon();
  entry.stream->EndUnconnected(reason);
}

void GrpcPeerNetwork::Impl::Remove(StreamId id) {
  CoordinatorEntry coordinator;  // goes when the lock is free again
  MutexLock lock(mutex_);
  if (const auto node = node_streams_.find(id); node != node_streams_.end()) {
    connections_->End(node->second.connection, Clock::now());
    sweeps_->Start();
    node_streams_.erase(node);
  }
  if (const auto found = coordinator_streams_.find(id); found != coordinator_streams_.end()) {
    coordinator = std::move(found->second);
    coordinator_streams_.erase(found);
  }
  if (node_streams_.empty() && coordinator_streams_.empty()) emptied_.NotifyAll();
}

template <typename Visit>
void GrpcPeerNetwork::Impl::ForEachStream(Visit visit) {
  std::vector<std::shared_ptr<NodeStream>> nodes;
  std::vector<std::shared_ptr<CoordinatorStream>> coordinators;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, entry] : node_streams_) nodes.push_back(entry.stream);
    for (const auto& [id, entry] : coordinator_streams_) coordinators.push_back(entry.stream);
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
  std::vector<StreamId> streams;
  {
    MutexLock lock(mutex_);
    shut_down_ = true;
    for (const auto& [id, entry] : node_streams_) streams.push_back(id);
    for (const auto& [id, entry] : coordinator_streams_) streams.push_back(id);
  }
  for (const StreamId id : streams) {
    Close(id, absl::CancelledError("this ringd is shutting down"));
  }
  resolver_.Stop();
  if (!WaitUntilEmpty(deadline)) {
    ForEachStream([](auto& stream) { stream.Cut(); });
    if (!WaitUntilEmpty(Clock::now() + kCutPatience)) {
      // gRPC ends every cancelled call; going on would free what it still uses.
      std::fputs("ringd: gRPC did not end cancelled streams\n", stderr);
      std::abort();
    }
  }
  servers_.Shutdown(deadline);
  sweeps_->Stop();
  connections_->Clear();
}

GrpcPeerNetwork::GrpcPeerNetwork(Door* door, GrpcPeerNetworkOptions options)
    : impl_(std::make_unique<Impl>(door, options)) {}

GrpcPeerNetwork::~GrpcPeerNetwork() { Shutdown(Clock::now()); }

void GrpcPeerNetwork::Shutdown(Clock::time_point deadline) { impl_->Shutdown(deadline); }

void GrpcPeerNetwork::SetEvents(PeerEvents* events) { impl_->SetEvents(events); }

ExpectationId GrpcPeerNetwork::Expect(ExpectedJob job) { return impl_->Expect(std::move(job)); }

void GrpcPeerNetwork::StopExpecting(ExpectationId job) { impl_->expected().Remove(job); }

void GrpcPeerNetwork::RefuseNewJobs() { impl_->RefuseNewJobs(); }

StreamId GrpcPeerNetwork::ConnectToCoordinator(CoordinatorAddress coordinator,
                                               Clock::time_point deadline) {
  return impl_->Connect(std::move(coordinator), deadline);
}

void GrpcPeerNetwork::Send(StreamId stream, v1::NodeMessage message) {
  const auto found = impl_->FindCoordinator(stream);
  // One that has no connection yet has to be told that it will have none.
  if (found != nullptr && !found->Send(std::move(message))) impl_->Close(stream, absl::OkStatus());
}

void GrpcPeerNetwork::Send(StreamId stream, v1::CoordinatorMessage message) {
  if (const auto found = impl_->FindNode(stream)) {
    static_cast<void>(found->Send(std::move(message)));  // its last event says so
  }
}

void GrpcPeerNetwork::Close(StreamId stream, absl::Status reason) {
  impl_->Close(stream, std::move(reason));
}

}  // namespace ringd
