// This node's part in measuring the links between the nodes of a job, before it begins.
#ifndef RINGD_DAEMON_JOBS_LINK_PROBER_H_
#define RINGD_DAEMON_JOBS_LINK_PROBER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "backends/backend.h"
#include "proto/rpc/peer.pb.h"

namespace ringd {

// Holds a communicator of its own, so that nothing of the job's is touched.
//
// Thread safety: none; the engine thread owns it.
// Ownership: borrows the transport, which outlives it.
// Invariant: Poll() returns one report, also after Abort(). Destruction before that may block.
class LinkProber {
 public:
  // `weight`: the job's share of lines.
  //   kInvalidArgument: what the coordinator sent makes no sense. Others: as of CreateCommunicator.
  static absl::StatusOr<std::unique_ptr<LinkProber>> Start(Transport& transport,
                                                           const v1::LinkProbe& probe,
                                                           std::uint32_t weight);

  // The report, once, when all is measured or nothing will be.
  std::optional<v1::LinkReport> Poll();
  // Gives it up: Poll() reports soon, when nothing is being sent any more.
  void Abort(absl::string_view reason);

 private:
  LinkProber(std::unique_ptr<Communicator> communicator, int node_count, int self);

  const int self_;
  std::vector<LinkTimes> times_;  // by node; before the communicator that writes there
  std::unique_ptr<Communicator> communicator_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_JOBS_LINK_PROBER_H_
