// The form in which what was learned is kept in a file.
#ifndef RINGD_DAEMON_JOBS_PLANS_PLAN_FILE_H_
#define RINGD_DAEMON_JOBS_PLANS_PLAN_FILE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "daemon/schedule/planning/kept_plan.h"
#include "daemon/schedule/routes/all_reduce_times.h"
#include "daemon/schedule/routes/link_matrix.h"

namespace ringd {

// A plan and whose it is.
struct StoredPlan {
  std::string nodes;    // see NodesKey
  std::string tensors;  // see TensorsKey
  std::shared_ptr<const KeptPlan> plan;
};

// The way from one node to another, by their names, and when it was measured.
struct StoredLink {
  std::string from;
  std::string to;
  MeasuredLink link;
  std::int64_t unix_seconds = 0;

  friend bool operator==(const StoredLink&, const StoredLink&) = default;
};

// What small all-reduces of nodes of these names, in ring order, take, and when that was tried.
struct StoredTrial {
  std::vector<std::string> nodes;
  std::vector<AllReduceTimes> times;
  std::int64_t unix_seconds = 0;

  friend bool operator==(const StoredTrial&, const StoredTrial&) = default;
};

struct KeptState {
  std::vector<StoredPlan> plans;    // the one used last first
  std::vector<StoredLink> links;    // the one measured last first
  std::vector<StoredTrial> trials;  // the last first
};

struct ParsedState {
  KeptState state;
  // Entries that no sound ringd has written, and are not in `state`: what is wrong, one each.
  std::vector<std::string> left_out;
};

// Hashes of 16 hexadecimal digits; equal for equal input in every build.
std::string HashText(absl::string_view text);
// Of the tensors' names and descriptions, in whatever buckets they are.
std::string TensorsKey(const KeptPlan& plan);

std::size_t TensorCount(const KeptPlan& plan);

// JSON as proto/rpc/kept_plans.proto describes it.
std::string FormatState(const KeptState& state);
// The most text that passes between two processes at once.
inline constexpr std::size_t kMostPassedBytes = std::size_t{1} << 20;
// As much of it as is formatted in so many bytes: the last entries go, of the plans, links or
// trials that take most of them.
KeptState Bounded(KeptState state, std::size_t most_bytes);
// That, formatted; what is short enough is formatted once.
std::string FormatBounded(KeptState state, std::size_t most_bytes);

// One bad entry is no reason to measure and learn all others again.
//   kInvalidArgument: no such JSON, or another version.
absl::StatusOr<ParsedState> ParseState(absl::string_view text);

}  // namespace ringd

#endif  // RINGD_DAEMON_JOBS_PLANS_PLAN_FILE_H_
