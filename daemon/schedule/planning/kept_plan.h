// What a coordinator has learned about a communicator, in the form in which it outlives the job.
//
// Plain data.
#ifndef RINGD_DAEMON_SCHEDULE_PLANNING_KEPT_PLAN_H_
#define RINGD_DAEMON_SCHEDULE_PLANNING_KEPT_PLAN_H_

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "daemon/schedule/link/link_model.h"
#include "daemon/schedule/protocol/tensor_meta.h"

namespace ringd {

struct KeptTensor {
  std::string name;
  TensorMeta meta;
  std::chrono::nanoseconds ready_offset{0};
  bool follows_wait = false;

  friend bool operator==(const KeptTensor&, const KeptTensor&) = default;
};

using KeptBucket = std::vector<KeptTensor>;  // in packing order

struct KeptPlan {
  std::vector<KeptBucket> buckets;
  // Latency and bandwidth; meaningless unless they were measured.
  bool link_measured = false;
  std::chrono::nanoseconds latency{0};
  double bytes_per_second = 0;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SCHEDULE_PLANNING_KEPT_PLAN_H_
