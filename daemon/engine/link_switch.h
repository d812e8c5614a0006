// Connects the jobs of this node with their coordinators, here or on another node.
//
// A link has two ends: a Job (node side) and a JobCoordinator. If both are in this process,
// messages are put into a queue here and handed over by Deliver(), so that neither calls into the
// other; otherwise they go through a stream of the PeerNetwork.
#ifndef RINGD_DAEMON_ENGINE_LINK_SWITCH_H_
#define RINGD_DAEMON_ENGINE_LINK_SWITCH_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "daemon/jobs/coordinator/job_coordinator.h"
#include "daemon/jobs/job.h"
#include "daemon/jobs/membership/coordinator_link.h"
#include "daemon/peers/peer_network.h"
#include "proto/base/clock.h"

namespace ringd {

// Thread safety: none; the progress thread owns it.
// Ownership: jobs and coordinators are borrowed; Forget() them before they go.
class LinkSwitch final : public NodeSender {
 public:
  explicit LinkSwitch(PeerNetwork* network) : network_(network) {}

  // Links a job with a coordinator in this process.
  std::unique_ptr<CoordinatorLink> LinkInside(Job* job, JobCoordinator* coordinator);
  // Links a job with its coordinator on another node.
  std::unique_ptr<CoordinatorLink> LinkOutside(Job* job, CoordinatorAddress coordinator,
                                               Clock::time_point deadline);

  // A stream opened to here by a node that has the job's key, and has not said its Hello.
  struct Stranger {
    ExpectationId job;
    std::string from;
    Clock::time_point since;
  };
  void AddStranger(StreamId stream, Stranger stranger);
  Stranger* FindStranger(StreamId stream);
  const std::map<StreamId, Stranger>& strangers() const noexcept { return strangers_; }
  void Introduce(StreamId stream, JobCoordinator* coordinator);
  void TurnAway(StreamId stream, const absl::Status& reason);

  // What came through a stream.
  JobCoordinator* CoordinatorOf(LinkId link) const;
  // In this process; null: it is elsewhere, or has gone.
  JobCoordinator* CoordinatorOf(const Job& job) const;
  Job* JobOf(LinkId link) const;
  void OnStreamEnded(LinkId link);

  // Hands over what was sent inside the process, until there is no more. True if there was
  // something.
  bool Deliver(Clock::time_point now);
  bool empty() const noexcept { return inside_.empty(); }

  // Cuts all links of the one; the other end of an inside link is told.
  void Forget(const Job* job);
  void Forget(const JobCoordinator* coordinator);

  void SendToNode(LinkId link, v1::CoordinatorMessage message) override;
  void CloseNode(LinkId link, const absl::Status& reason) override;

 private:
  class InsideLink;
  class OutsideLink;
  struct Parcel {
    LinkId link;
    std::variant<v1::NodeMessage, v1::CoordinatorMessage> message;
  };

  PeerNetwork* network_;
  std::uint64_t next_inside_ = std::uint64_t{1} << 63;  // above any stream's number
  std::map<LinkId, Job*> jobs_;
  std::map<LinkId, JobCoordinator*> coordinators_;
  std::map<StreamId, Stranger> strangers_;
  std::deque<Parcel> inside_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_ENGINE_LINK_SWITCH_H_
