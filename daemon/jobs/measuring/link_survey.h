// What the nodes of a job say of the links between them, gathered.
#ifndef RINGD_DAEMON_JOBS_MEASURING_LINK_SURVEY_H_
#define RINGD_DAEMON_JOBS_MEASURING_LINK_SURVEY_H_

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "daemon/peers/peer_network.h"
#include "daemon/schedule/routes/link_matrix.h"
#include "proto/rpc/peer.pb.h"

namespace ringd {

// Thread safety: none; the progress thread owns it.
class LinkSurvey {
 public:
  // Of the nodes with these streams; figures are by position in the list.
  explicit LinkSurvey(std::vector<StreamId> nodes);

  // A node's report. kInvalidArgument: it makes no sense; kUnavailable: the node could not measure.
  absl::Status Add(StreamId node, const v1::LinkReport& report);

  bool complete() const noexcept { return missing_ == 0; }
  const std::vector<StreamId>& nodes() const noexcept { return nodes_; }
  // Requirement: complete().
  const LinkMatrix& links() const noexcept { return links_; }

 private:
  std::vector<StreamId> nodes_;
  std::vector<bool> reported_;
  std::size_t missing_;
  LinkMatrix links_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_JOBS_MEASURING_LINK_SURVEY_H_
