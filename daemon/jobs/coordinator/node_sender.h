// How a job's coordinator reaches the job's nodes.
#ifndef RINGD_DAEMON_JOBS_COORDINATOR_NODE_SENDER_H_
#define RINGD_DAEMON_JOBS_COORDINATOR_NODE_SENDER_H_

#include "absl/status/status.h"
#include "daemon/peers/peer_network.h"
#include "proto/rpc/peer.pb.h"

namespace ringd {

// A node's connection as the engine numbers it: a stream of PeerNetwork, or one inside the process.
using LinkId = StreamId;

// Neither method blocks or calls back.
class NodeSender {
 public:
  virtual ~NodeSender() = default;
  virtual void SendToNode(LinkId link, v1::CoordinatorMessage message) = 0;
  virtual void CloseNode(LinkId link, const absl::Status& reason) = 0;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_JOBS_COORDINATOR_NODE_SENDER_H_
