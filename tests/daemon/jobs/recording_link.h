// Keeps what a job sends to its coordinator, which the test is.
#ifndef RINGD_TESTS_DAEMON_JOBS_RECORDING_LINK_H_
#define RINGD_TESTS_DAEMON_JOBS_RECORDING_LINK_H_

#include <utility>
#include <vector>

#include "daemon/jobs/membership/coordinator_link.h"
#include "proto/rpc/peer.pb.h"

namespace ringd {

class RecordingLink final : public CoordinatorLink {
 public:
  explicit RecordingLink(std::vector<v1::NodeMessage>& sent) : sent_(sent) {}
  void Send(v1::NodeMessage message) override { sent_.push_back(std::move(message)); }

 private:
  std::vector<v1::NodeMessage>& sent_;
};

}  // namespace ringd

#endif  // RINGD_TESTS_DAEMON_JOBS_RECORDING_LINK_H_
