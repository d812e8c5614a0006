#include "daemon/peers/grpc_peer_network.h"

#include <grpcpp/alarm.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/channel_arguments.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "daemon/peers/ordered_stream.h"
#include "proto/base/mutex.h"
#include "proto/rpc/peer.grpc.pb.h"

namespace ringd {
namespace {

// A schedule of ten thousand tensors with long names stays below this.
constexpr int kMaxMessageBytes = 32 << 20;
// gRPC sends a status as metadata, of which 8 KiB may be in a message, and writes any byte that is not
// ASCII as three.
constexpr std::size_t kMaxReasonBytes = 2048;
// Between attempts to reach a coordinator that is not there yet.
constexpr int kMinReconnectMillis = 50;
constexpr int kMaxReconnectMillis = 500;
constexpr int kConnectAttemptMillis = 2000;
// Long after every stream was cut.
constexpr std::chrono::seconds kCutPatience{10};

// "ipv4:10.0.0.1:80" and "ipv6:%5B::1%5D:80", as gRPC says it, to host:port.
std::string HostPort(absl::string_view peer) {
  const std::size_t scheme = peer.find(':');
  if (absl::StartsWith(peer, "ipv") && scheme != absl::string_view::npos) {
    peer.remove_prefix(scheme + 1);
  }
  return absl::StrReplaceAll(peer, {{"%5B", "["}, {"%5D", "]"}});
}

std::string CutToLength(absl::string_view text, std::size_t max_bytes) {
  if (text.size() <= max_bytes) return std::string(text);
  std::size_t end = max_bytes;
  // Not in the middle of a UTF-8 character.
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return std::string(text.substr(0, end));
}

grpc::Status ToGrpc(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.raw_code()),
                      CutToLength(status.message(), kMaxReasonBytes));
}

gpr_timespec FromNow(Clock::duration delay) {
  return gpr_time_add(
      gpr_now(GPR_CLOCK_MONOTONIC),
      gpr_time_from_nanos(std::chrono::duration_cast<std::chrono::nanoseconds>(delay).count(),
                          GPR_TIMESPAN));
}

// Calls Cut() on the stream after `delay`, if it still exists then. The alarm must not be set already.
template <typename Stream>
void CutAfter(grpc::Alarm& alarm, Clock::duration delay, std::weak_ptr<Stream> stream) {
  alarm.Set(FromNow(delay), [stream = std::move(stream)](bool fired) {
    if (!fired) return;
    if (const std::shared_ptr<Stream> alive = stream.lock()) alive->Cut();
  });
}

template <typename Arguments>
void SetKeepalive(const GrpcPeerNetworkOptions& options, Arguments set) {
  set(GRPC_ARG_KEEPALIVE_TIME_MS, static_cast<int>(options.keepalive_interval.count()));
  set(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, static_cast<int>(options.keepalive_timeout.count()));
  set(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // no limit: a job may be silent for hours
  set(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);        // nor is the other side blamed for its pings
  set(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 100);
  // The bandwidth probe would put a ping behind each message; these are small.
  set(GRPC_ARG_HTTP2_BDP_PROBE, 0);
}

// Turns a stream away.
class Rejection final : public grpc::ServerBidiReactor<v1::NodeMessage, v1::CoordinatorMessage> {
 public:
  explicit Rejection(const absl::Status& why) { Finish(ToGrpc(why)); }
  void OnDone() override { delete this; }
};

}  // namespace

// Owns the streams by number until each has had its last event.
class GrpcPeerNetwork::Impl {
 public:
  explicit Impl(GrpcPeerNetworkOptions options) : options_(options), service_(this) {}

  class NodeStream;         // opened to here, by a node
  class CoordinatorStream;  // opened here

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
  void Remove(StreamId id);
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
  std::shared_ptr<grpc::Channel> OpenChannel(const std::string& host_port) const;
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

class GrpcPeerNetwork::Impl::NodeStream final
    : public OrderedStream<grpc::ServerBidiReactor<v1::NodeMessage, v1::CoordinatorMessage>,
                           v1::NodeMessage, v1::CoordinatorMessage>,
      public std::enable_shared_from_this<NodeStream> {
 public:
  NodeStream(Impl* owner, PeerEvents* events, StreamId id, grpc::CallbackServerContext* context)
      : OrderedStream(owner->options().max_outgoing_bytes),
        owner_(owner),
        events_(events),
        id_(id),
        context_(context) {}

  void Begin() {
    events_->OnNodeConnected(id_, HostPort(context_->peer()));
    StartSendInitialMetadata();  // tells the node that it is connected
    BeginReading();
  }

  void OnCancel() override {
    {
      MutexLock lock(mutex_);
      lost_ = true;
    }
    Abandon();
  }

  void OnDone() override {
    const std::shared_ptr<NodeStream> self = shared_from_this();
    MarkEnded();
    close_alarm_.Cancel();
    absl::Status why;
    {
      MutexLock lock(mutex_);
      if (closed_here_) {
        why = reason_;
      } else if (lost_) {
        why = absl::UnavailableError("the connection was lost");
      }
    }
    events_->OnNodeDisconnected(id_, std::move(why));
    owner_->Remove(id_);
  }

 protected:
  void Deliver(v1::NodeMessage message) override {
    events_->OnNodeMessage(id_, std::move(message));
  }
  void FinishLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) override { Finish(ToGrpc(reason_)); }
  void CutLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) override { context_->TryCancel(); }
  void StartCloseTimerLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) override {
    CutAfter(close_alarm_, owner_->options().close_grace, weak_from_this());
  }

 private:
  Impl* const owner_;
  PeerEvents* const events_;
  const StreamId id_;
  grpc::CallbackServerContext* const context_;  // gRPC's, until OnDone
  grpc::Alarm close_alarm_;
  bool lost_ ABSL_GUARDED_BY(mutex_) = false;
};

class GrpcPeerNetwork::Impl::CoordinatorStream final
    : public OrderedStream<grpc::ClientBidiReactor<v1::NodeMessage, v1::CoordinatorMessage>,
                           v1::CoordinatorMessage, v1::NodeMessage>,
      public std::enable_shared_from_this<CoordinatorStream> {
 public:
  CoordinatorStream(Impl* owner, PeerEvents* events, StreamId id, std::string host_port,
                    std::shared_ptr<grpc::Channel> channel)
      : OrderedStream(owner->options().max_outgoing_bytes),
        owner_(owner),
        events_(events),
        id_(id),
        host_port_(std::move(host_port)),
        channel_(std::move(channel)),
        context_(std::make_unique<grpc::ClientContext>()) {}

  void Begin(Clock::time_point deadline) {
    context_->set_wait_for_ready(true);
    stub_ = v1::Peer::NewStub(channel_);
    stub_->async()->Job(context_.get(), this);
    AddHold();  // for writes, which start outside of reactions; released by FinishLocked
    BeginReading();
    CutAfter(connect_alarm_, std::max(deadline - Clock::now(), Clock::duration::zero()),
             weak_from_this());
    StartCall();
  }

  void OnReadInitialMetadataDone(bool ok) override {
    if (!ok) return;
    {
      MutexLock lock(mutex_);
      connected_ = true;
    }
    connect_alarm_.Cancel();
  }

  void OnDone(const grpc::Status& status) override {
    const std::shared_ptr<CoordinatorStream> self = shared_from_this();
    MarkEnded();
    connect_alarm_.Cancel();
    close_alarm_.Cancel();
    // The channel goes before Remove() tells that nothing of the stream is left: see anchor_.
    context_.reset();
    stub_.reset();
    channel_.reset();
    events_->OnCoordinatorDisconnected(id_, Explain(status));
    owner_->Remove(id_);
  }

 protected:
  void Deliver(v1::CoordinatorMessage message) override {
    events_->OnCoordinatorMessage(id_, std::move(message));
  }
  void FinishLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) override {
    if (closed_here_) StartWritesDone();
    RemoveHold();
  }
  void CutLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) override { context_->TryCancel(); }
  void StartCloseTimerLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) override {
    CutAfter(close_alarm_, owner_->options().close_grace, weak_from_this());
  }

 private:
  absl::Status Explain(const grpc::Status& status) {
    MutexLock lock(mutex_);
    if (closed_here_) return reason_;
    if (!connected_ && status.error_code() == grpc::StatusCode::CANCELLED) {
      return absl::DeadlineExceededError(
          absl::StrCat("no ringd answered at ", host_port_, " before the deadline"));
    }
    if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
      return absl::UnavailableError(absl::StrCat("the connection to the ringd at ", host_port_,
                                                 " was lost: ", status.error_message()));
    }
    return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  }

  Impl* const owner_;
  PeerEvents* const events_;
  const StreamId id_;
  const std::string host_port_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Peer::Stub> stub_;
  std::unique_ptr<grpc::ClientContext> context_;
  grpc::Alarm connect_alarm_;
  grpc::Alarm close_alarm_;
  bool connected_ ABSL_GUARDED_BY(mutex_) = false;
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
    stream = std::make_shared<NodeStream>(this, events_, id, context);
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
    std::shared_ptr<grpc::Channel> channel = OpenChannel(host_port);
    if (anchor_ == nullptr) anchor_ = channel;
    stream = std::make_shared<CoordinatorStream>(this, events_, id, host_port, std::move(channel));
    coordinator_streams_.emplace(id, stream);
  }
  stream->Begin(deadline);
  return id;
}

std::shared_ptr<grpc::Channel> GrpcPeerNetwork::Impl::OpenChannel(
    const std::string& host_port) const {
  grpc::ChannelArguments arguments;
  SetKeepalive(options_, [&](const char* key, int value) { arguments.SetInt(key, value); });
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  // A connection of its own: no waiting for what another stream's attempts have met.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kMinReconnectMillis);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kMaxReconnectMillis);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectAttemptMillis);
  // A channel whose stream has ended lets its connection go.
  arguments.SetInt(GRPC_ARG_CLIENT_IDLE_TIMEOUT_MS, 1000);
  return grpc::CreateCustomChannel(absl::StrCat("dns:///", host_port),
                                   grpc::InsecureChannelCredentials(), arguments);
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
  SetKeepalive(impl_->options(),
               [&](const char* key, int value) { builder.AddChannelArgument(key, value); });
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
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
