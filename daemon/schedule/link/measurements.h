// What a node measures while a communicator works, for the plans of its coordinator.
//
// Plain data. Nothing is measured with traffic of its own: it is what operations that ran anyway
// showed.
#ifndef RINGD_DAEMON_SCHEDULE_LINK_MEASUREMENTS_H_
#define RINGD_DAEMON_SCHEDULE_LINK_MEASUREMENTS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ringd {

// How long an all-reduce of about this size takes on the wire.
struct LinkObservation {
  std::size_t bytes = 0;
  std::chrono::nanoseconds time{0};
  std::uint32_t samples = 0;

  friend bool operator==(const LinkObservation&, const LinkObservation&) = default;
};

// When the local ranks have usually all submitted the tensor, since the first tensor of the step.
struct TensorReadiness {
  std::string tensor;
  std::chrono::nanoseconds offset{0};

  friend bool operator==(const TensorReadiness&, const TensorReadiness&) = default;
};

struct NodeMeasurements {
  std::vector<LinkObservation> link;       // all that is known, one per size class
  std::vector<TensorReadiness> readiness;  // of all learned tensors; empty if none has changed

  bool empty() const { return link.empty() && readiness.empty(); }
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SCHEDULE_LINK_MEASUREMENTS_H_
