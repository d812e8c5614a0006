// This node's part in trying small all-reduces with the other nodes of a job, before it begins.
#ifndef RINGD_DAEMON_JOBS_MEASURING_ALL_REDUCE_PROBER_H_
#define RINGD_DAEMON_JOBS_MEASURING_ALL_REDUCE_PROBER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "backends/backend.h"
#include "daemon/jobs/measuring/start_probe.h"
#include "daemon/schedule/routes/all_reduce_trial.h"
#include "proto/rpc/peer.pb.h"

namespace ringd {

class AllReduceProber final : public StartProbe {
 public:
  //   As MakeProbeCommunicator.
  static absl::StatusOr<std::unique_ptr<StartProbe>> Start(Transport& transport,
                                                           const v1::ProbedNodes& nodes,
                                                           const ProbeTerms& terms);

  std::optional<v1::NodeMessage> Poll() override;
  void Abort(absl::string_view reason) override;

 private:
  explicit AllReduceProber(std::unique_ptr<Communicator> communicator);

  bool PostNext();

  AllReduceTrial trial_;
  std::uint32_t sequence_ = 0;
  std::vector<double> buffer_;  // before the communicator that writes there
  std::unique_ptr<Communicator> communicator_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_JOBS_MEASURING_ALL_REDUCE_PROBER_H_
