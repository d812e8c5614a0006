// The form in which learned plans are kept in a file.
#ifndef RINGD_DAEMON_JOBS_PLAN_FILE_H_
#define RINGD_DAEMON_JOBS_PLAN_FILE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "daemon/schedule/kept_plan.h"

namespace ringd {

// A plan and whose it is.
struct StoredPlan {
  std::string nodes;    // see NodesKey
  std::string tensors;  // see TensorsKey
  std::shared_ptr<const KeptPlan> plan;
};

// Hashes of 16 hexadecimal digits; equal for equal input in every build.
std::string HashText(absl::string_view text);
// Of the tensors' names and descriptions, in whatever buckets they are.
std::string TensorsKey(const KeptPlan& plan);

std::size_t TensorCount(const KeptPlan& plan);

// JSON as proto/rpc/kept_plans.proto describes it.
std::string FormatPlans(const std::vector<StoredPlan>& plans);
//   kInvalidArgument: no such JSON, another version, or something that no sound ringd has written.
absl::StatusOr<std::vector<StoredPlan>> ParsePlans(absl::string_view text);

}  // namespace ringd

#endif  // RINGD_DAEMON_JOBS_PLAN_FILE_H_
