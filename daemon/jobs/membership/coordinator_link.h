// A node's way to the coordinator of its job, wherever that is.
#ifndef RINGD_DAEMON_JOBS_MEMBERSHIP_COORDINATOR_LINK_H_
#define RINGD_DAEMON_JOBS_MEMBERSHIP_COORDINATOR_LINK_H_

#include "proto/rpc/peer.pb.h"

namespace ringd {

// One implementation hands messages over inside the process, the other sends them through a Job
// stream (daemon/peers). Both keep the order, and neither calls back from within Send.
//
// Thread safety: none; the progress thread uses it.
class CoordinatorLink {
 public:
  virtual ~CoordinatorLink() = default;

  // Never blocks. Dropped if the link is broken: its owner is told so separately.
  virtual void Send(v1::NodeMessage message) = 0;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_JOBS_MEMBERSHIP_COORDINATOR_LINK_H_
