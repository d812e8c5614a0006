#include "backends/collectives/wire_spec.h"

#include <cstdint>

#include "absl/strings/str_cat.h"

namespace ringd {

std::string NodeNameOf(const CommunicatorSpec& spec, std::size_t node) {
  return node < spec.node_names.size() ? spec.node_names[node] : absl::StrCat("node ", node);
}

absl::Status CheckSpec(const CommunicatorSpec& spec, bool (*is_address)(absl::string_view),
                       absl::string_view kind) {
  const auto node_count = static_cast<std::int64_t>(spec.addresses.size());
  if (spec.self.value() < 0 || spec.self.value() >= node_count) {
    return absl::InvalidArgumentError(
        absl::StrCat("node ", spec.self.value(), " is not one of the ", node_count, " nodes"));
  }
  for (std::size_t i = 0; i < spec.addresses.size(); ++i) {
    if (!is_address(spec.addresses[i])) {
      return absl::InvalidArgumentError(
          absl::StrCat("the address of ", NodeNameOf(spec, i), " is no ", kind, " address"));
    }
  }
  return absl::OkStatus();
}

std::vector<NodeIndex> RingNeighbours(const CommunicatorSpec& spec) {
  const auto node_count = static_cast<std::int32_t>(spec.addresses.size());
  const std::int32_t self = spec.self.value();
  std::vector<NodeIndex> neighbours;
  if (node_count > 1) neighbours.emplace_back((self + 1) % node_count);
  if (node_count > 2) neighbours.emplace_back((self + node_count - 1) % node_count);
  return neighbours;
}

}  // namespace ringd
