// The setting `fusion` as people write it.
#ifndef RINGD_DAEMON_CONFIG_FUSION_SETTING_H_
#define RINGD_DAEMON_CONFIG_FUSION_SETTING_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "daemon/schedule/planning/fusion_policy.h"

namespace ringd {

// What is allowed, for messages.
inline constexpr absl::string_view kAllowedFusion =
    "learned, pinned, off, or a size such as \"64MiB\" between 1 byte and 64GiB";

//   kInvalidArgument: anything else.
absl::StatusOr<FusionPolicy> ParseFusion(absl::string_view text);

}  // namespace ringd

#endif  // RINGD_DAEMON_CONFIG_FUSION_SETTING_H_
