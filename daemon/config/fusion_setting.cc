#include "daemon/config/fusion_setting.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "daemon/config/quantity.h"

namespace ringd {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{64} << 30;

}  // namespace

absl::StatusOr<FusionPolicy> ParseFusion(absl::string_view text) {
  using Kind = FusionPolicy::Kind;
  if (text == "learned") return FusionPolicy{Kind::kLearned, 0};
  if (text == "pinned") return FusionPolicy{Kind::kPinned, 0};
  if (text == "off") return FusionPolicy{Kind::kOff, 0};
  const absl::StatusOr<std::uint64_t> bytes = ParseBytes(text);
  if (!bytes.ok() || *bytes == 0 || *bytes > kMostBytes) {
    return absl::InvalidArgumentError(absl::StrCat("allowed: ", kAllowedFusion));
  }
  return FusionPolicy{Kind::kFixed, *bytes};
}

}  // namespace ringd
