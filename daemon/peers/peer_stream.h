// The two ends of a Peer.Job call, each telling PeerEvents what happens on it.
//
// Internal to daemon/peers: the classes are gRPC's reactors.
#ifndef RINGD_DAEMON_PEERS_PEER_STREAM_H_
#define RINGD_DAEMON_PEERS_PEER_STREAM_H_

#include <grpcpp/alarm.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "daemon/peers/ordered_stream.h"
#include "daemon/peers/peer_network.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/rpc/peer.grpc.pb.h"

namespace ringd {

// Where the streams are kept, by number.
class PeerStreamOwner {
 public:
  virtual ~PeerStreamOwner() = default;
  // The stream has had its last event, and nothing of gRPC's belongs to it any more.
  virtual void Remove(StreamId id) = 0;
};

// What both ends are made with.
struct PeerStreamContext {
  PeerStreamOwner* owner;
  PeerEvents* events;
  StreamId id;
  std::size_t max_outgoing_bytes;
  std::chrono::milliseconds close_grace;
};

// Opened to here, by a node.
//
// Thread safety: as OrderedStream.
// Ownership: shared; the owner holds it until Remove(). Owner and events outlive it.
class NodeStream final
    : public OrderedStream<grpc::ServerBidiReactor<v1::NodeMessage, v1::CoordinatorMessage>,
                           v1::NodeMessage, v1::CoordinatorMessage>,
      public std::enable_shared_from_this<NodeStream> {
 public:
  NodeStream(const PeerStreamContext& context, grpc::CallbackServerContext* call)
      : OrderedStream(context.max_outgoing_bytes, /*connected=*/true),
        context_(context),
        call_(call) {}

  // `from`: who it is, for messages.
  void Begin(ExpectationId job, std::string from);

  void OnCancel() override;
  void OnDone() override;

 protected:
  void Deliver(v1::NodeMessage message) override;
  void FinishLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) override;
  void CutLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) override;
  void StartCloseTimerLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) override;

 private:
  const PeerStreamContext context_;
  grpc::CallbackServerContext* const call_;  // gRPC's, until OnDone
  grpc::Alarm close_alarm_;
  bool lost_ ABSL_GUARDED_BY(mutex_) = false;
};

// Opened here, to a coordinator. As NodeStream. It begins without a connection.
class CoordinatorStream final
    : public OrderedStream<grpc::ClientBidiReactor<v1::NodeMessage, v1::CoordinatorMessage>,
                           v1::CoordinatorMessage, v1::NodeMessage>,
      public std::enable_shared_from_this<CoordinatorStream> {
 public:
  CoordinatorStream(const PeerStreamContext& context, std::string host_port);

  // Goes on over this connection, on which the coordinator's ringd knows by `call_token` whose it
  // is. Nothing happens if it was closed meanwhile.
  void Begin(std::shared_ptr<grpc::Channel> channel, const std::string& call_token);
  // There will be no connection: its last event. Nothing happens if it has one.
  void EndUnconnected(const absl::Status& why);

  void OnReadInitialMetadataDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 protected:
  void Deliver(v1::CoordinatorMessage message) override;
  void FinishLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) override;
  void CutLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) override;
  void StartCloseTimerLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) override;

 private:
  enum class Stage { kUnconnected, kConnected, kEnded };

  void OnSilence();
  absl::Status Explain(const grpc::Status& status);

  const PeerStreamContext context_;
  const std::string host_port_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Peer::Stub> stub_;
  std::unique_ptr<grpc::ClientContext> call_;
  grpc::Alarm answer_alarm_;
  grpc::Alarm close_alarm_;
  Stage stage_ ABSL_GUARDED_BY(mutex_) = Stage::kUnconnected;
  bool answered_ ABSL_GUARDED_BY(mutex_) = false;
  bool was_silent_ ABSL_GUARDED_BY(mutex_) = false;  // for too long
};

// Metadata of the call: ControlCallToken of the connection's session key.
inline constexpr char kCallTokenKey[] = "ringd-call-bin";

// gRPC's form of a status, its text cut to what a trailer holds.
grpc::Status ToGrpcTrailer(const absl::Status& status);

}  // namespace ringd

#endif  // RINGD_DAEMON_PEERS_PEER_STREAM_H_
