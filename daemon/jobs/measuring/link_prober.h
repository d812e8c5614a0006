// This node's part in measuring the links between the nodes of a job, before it begins.
#ifndef RINGD_DAEMON_JOBS_MEASURING_LINK_PROBER_H_
#define RINGD_DAEMON_JOBS_MEASURING_LINK_PROBER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "backends/backend.h"
#include "daemon/jobs/measuring/start_probe.h"
#include "proto/rpc/peer.pb.h"

namespace ringd {

class LinkProber final : public StartProbe {
 public:
  //   As MakeProbeCommunicator.
  static absl::StatusOr<std::unique_ptr<StartProbe>> Start(Transport& transport,
                                                           const v1::ProbedNodes& nodes,
                                                           const ProbeTerms& terms);

  std::optional<v1::NodeMessage> Poll() override;
  void Abort(absl::string_view reason) override;

 private:
  LinkProber(std::unique_ptr<Communicator> communicator, int node_count, int self);

  const int self_;
  std::vector<LinkTimes> times_;  // by node; before the communicator that writes there
  std::unique_ptr<Communicator> communicator_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_JOBS_MEASURING_LINK_PROBER_H_
