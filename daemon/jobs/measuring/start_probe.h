// What the nodes of a job measure together before it begins, as one of them sees it.
#ifndef RINGD_DAEMON_JOBS_MEASURING_START_PROBE_H_
#define RINGD_DAEMON_JOBS_MEASURING_START_PROBE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "backends/backend.h"
#include "proto/door/door_key.h"
#include "proto/rpc/peer.pb.h"

namespace ringd {

// Holds a communicator of its own, so that nothing of the job's is touched.
//
// Thread safety: none; the progress thread owns it.
// Ownership: borrows the transport, which outlives it.
// Invariant: Poll() returns one report, also after Abort(). Destruction before that may block.
class StartProbe {
 public:
  virtual ~StartProbe() = default;

  // The report to the coordinator, once, when all is measured or nothing will be.
  virtual std::optional<v1::NodeMessage> Poll() = 0;
  // Gives it up: Poll() reports soon, when nothing is being sent any more.
  virtual void Abort(absl::string_view reason) = 0;
};

// What a probe has of its job.
struct ProbeTerms {
  std::uint32_t weight = 1;  // its share of lines
  DoorKey job_key{};         // JobKey
};

//   kInvalidArgument: what the coordinator sent makes no sense. Others: as of CreateCommunicator.
absl::StatusOr<std::unique_ptr<Communicator>> MakeProbeCommunicator(Transport& transport,
                                                                    const v1::ProbedNodes& nodes,
                                                                    const ProbeTerms& terms);

// Why a probe could not be carried out, for its report.
std::string DescribeEnd(const Completion& completion, const Communicator& communicator);

}  // namespace ringd

#endif  // RINGD_DAEMON_JOBS_MEASURING_START_PROBE_H_
