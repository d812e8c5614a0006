#include "backends/tcp/line_shares.h"

#include <string_view>

namespace ringd {

absl::StatusOr<std::unique_ptr<LineShares>> LineShares::Open(int roster, int tags,
                                                             std::size_t slot) {
  if (slot >= kMostEngines) return absl::InvalidArgumentError("no engine has this slot");
  absl::StatusOr<MemoryMapping> roster_memory =
      MemoryMapping::MapReadOnly(roster, sizeof(LineRosterSegment));
  if (!roster_memory.ok()) return roster_memory.status();
  absl::StatusOr<MemoryMapping> tags_memory =
      MemoryMapping::MapSealed(tags, sizeof(LineTagsSegment));
  if (!tags_memory.ok()) return tags_memory.status();
  std::unique_ptr<LineShares> shares(
      new LineShares(*std::move(roster_memory), *std::move(tags_memory), slot));
  if (shares->roster().magic != kLineRosterMagic ||
      shares->roster().version != kLineSharesVersion) {
    return absl::InvalidArgumentError("no shares of lines, or of another version");
  }
  return shares;
}

LineTurn& LineShares::TurnTo(absl::string_view host) {
  const std::size_t line = LineOf(std::string_view(host.data(), host.size()));
  std::unique_ptr<LineTurn>& turn = turns_[line];
  if (turn == nullptr) turn = std::make_unique<LineTurn>(roster(), tags(), slot_, line);
  return *turn;
}

}  // namespace ringd
