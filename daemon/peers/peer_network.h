// The streams between nodes, as the engine sees them: numbered, ordered, and gone when they are
// gone.
//
// Each engine with ranks of a job keeps one stream to the coordinator of that job; the engine that
// holds the coordinator sees the other ends. What is said on a stream is in proto/rpc/peer.proto. A
// stream ends when either side closes it or when the other process, host or link is lost; a silent
// loss is noticed within a few seconds. Before there is a stream, both sides have proved that they
// have the job's key (proto/door).
#ifndef RINGD_DAEMON_PEERS_PEER_NETWORK_H_
#define RINGD_DAEMON_PEERS_PEER_NETWORK_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "proto/base/clock.h"
#include "proto/door/door_key.h"
#include "proto/rpc/peer.pb.h"
#include "proto/types/ids.h"

namespace ringd {

// A stream, opened here or to here; unique for the life of the PeerNetwork.
using StreamId = StrongId<struct StreamIdTag, std::uint64_t>;

// A job of this node whose coordinator is here and that waits for its ranks on other nodes.
struct ExpectedJob {
  std::string job_id;
  uid_t uid = 0;
  DoorKey key{};               // KeyForControl of the job's key
  bool has_secret = false;     // the ranks have brought one
  bool one_node_only = false;  // all its ranks are here: no other node is let in
};
using ExpectationId = StrongId<struct ExpectationIdTag, std::uint64_t>;

// One that wanted to take part in an expected job and could not show that it has the key: its own
// word.
struct RefusedNode {
  std::string node_name;
  std::string from;  // "node-b at 10.0.0.2 port 40001"
  uid_t uid = 0;
  bool has_cluster_key = false;
};

// The coordinator of a job on another node.
struct CoordinatorAddress {
  std::string host_port;
  std::string job_id;
  uid_t uid = 0;
  DoorKey key{};  // as in ExpectedJob
  bool has_secret = false;
};

// Held until a message has been dealt with: of a stream from which too many have not been, nothing
// more is read. So a node can't heap up messages here.
using MessageHold = std::shared_ptr<const void>;

// Receives what happens on the streams.
//
// Thread safety: called on the network's thread, but OnNodeRefused on one of the ControlDoor's; no
//   lock of the streams is held. Implementations must return soon (the engine posts the event to
//   itself) and may call any method of PeerNetwork.
// Invariants: the first event of a stream opened to here is OnNodeConnected. The last one of any
//   stream is its Disconnected event (or OnCoordinatorIsHere), exactly once, also after Close().
class PeerEvents {
 public:
  virtual ~PeerEvents() = default;

  // Coordinator side: a node that has the key of the expected job opened a stream to here. `from`
  // names it and its address, for messages.
  virtual void OnNodeConnected(StreamId stream, ExpectationId job, std::string from) = 0;
  // Somebody wanted to and was refused.
  virtual void OnNodeRefused(ExpectationId job, RefusedNode node) = 0;
  virtual void OnNodeMessage(StreamId stream, v1::NodeMessage message, MessageHold hold) = 0;

  // Ok: the node closed the stream in order. kUnavailable: the node or the way to it is lost.
  // kDeadlineExceeded: its host answers, and the process has not for long. After Close() here: the
  // reason given there.
  virtual void OnNodeDisconnected(StreamId stream, absl::Status why) = 0;

  // Node side: the stream came from ConnectToCoordinator(). It led to this very ringd, and has
  // ended: no other event comes.
  virtual void OnCoordinatorIsHere(StreamId stream) = 0;
  virtual void OnCoordinatorMessage(StreamId stream, v1::CoordinatorMessage message,
                                    MessageHold hold) = 0;

  // kDeadlineExceeded: no ringd with a rank of the job answered before the connect deadline.
  // kUnauthenticated, kFailedPrecondition, kInvalidArgument: as DialRequest::done. kUnavailable: it
  // or the way to it is lost, or it drains. After Close() here: the reason given there. Otherwise
  // what the coordinator closed with.
  virtual void OnCoordinatorDisconnected(StreamId stream, absl::Status why) = 0;
};

// Thread safety: every method from any thread. None blocks.
// Ownership: the events object is borrowed and outlives the network's streams.
class PeerNetwork {
 public:
  virtual ~PeerNetwork() = default;

  // Whom to tell. Call once, before the first stream; a node that connects earlier is turned away.
  virtual void SetEvents(PeerEvents* events) = 0;

  // From now on nodes of the job are let in. Those that came too early are looked at again.
  virtual ExpectationId Expect(ExpectedJob job) = 0;
  // From now on they are told to come later. Streams that are open stay.
  virtual void StopExpecting(ExpectationId job) = 0;

  // Opens a stream and returns at once. Keeps trying until `deadline`, so that a coordinator which
  // starts a moment later is found. Messages may be sent from the start; they leave once the stream
  // stands. There is no event for success.
  virtual StreamId ConnectToCoordinator(CoordinatorAddress coordinator,
                                        Clock::time_point deadline) = 0;

  // Queues the message behind those sent before on the stream. On a stream that has ended or was
  // closed it is dropped: the Disconnected event says so. A stream whose queue grows over the limit
  // is closed with kResourceExhausted.
  virtual void Send(StreamId stream, v1::NodeMessage message) = 0;         // opened here
  virtual void Send(StreamId stream, v1::CoordinatorMessage message) = 0;  // opened to here

  // Ends the stream in order: what was sent before still leaves, for a short time at most. No
  // message event begins any more. On a stream opened to here the other side is told `reason`, cut
  // to 2 KiB. Idempotent: the first reason stands.
  virtual void Close(StreamId stream, absl::Status reason) = 0;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_PEERS_PEER_NETWORK_H_
