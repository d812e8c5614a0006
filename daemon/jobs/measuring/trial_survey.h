// What the nodes of a job say of their small all-reduces, gathered.
#ifndef RINGD_DAEMON_JOBS_MEASURING_TRIAL_SURVEY_H_
#define RINGD_DAEMON_JOBS_MEASURING_TRIAL_SURVEY_H_

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "daemon/peers/peer_network.h"
#include "daemon/schedule/routes/all_reduce_times.h"
#include "proto/rpc/peer.pb.h"

namespace ringd {

// Thread safety: none; the progress thread owns it.
class TrialSurvey {
 public:
  // Of the nodes with these streams.
  explicit TrialSurvey(std::vector<StreamId> nodes);

  // A node's report. kInvalidArgument: it makes no sense, or others have decided on other sizes;
  // kUnavailable: the node could not try.
  absl::Status Add(StreamId node, const v1::TrialReport& report);

  bool complete() const noexcept { return reports_.size() == nodes_.size(); }
  const std::vector<StreamId>& nodes() const noexcept { return nodes_; }
  // Of each size the median of the nodes. They go on at one pace, so what differs is by chance.
  // Requirement: complete().
  std::vector<AllReduceTimes> Times() const;

 private:
  std::vector<StreamId> nodes_;
  std::vector<StreamId> reported_;
  std::vector<std::vector<AllReduceTimes>> reports_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_JOBS_MEASURING_TRIAL_SURVEY_H_
