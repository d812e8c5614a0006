#include "proto/rank_exchange/rank_exchange_segment.h"

#include <new>

#include "absl/strings/str_cat.h"

namespace ringd {

RankExchangeView InitializeRankExchangeSegment(std::byte* base,
                                               const RankExchangeGeometry& geometry) noexcept {
  auto* header = new (base) RankExchangeHeader{};
  header->magic = kRankExchangeMagic;
  header->version = kRankExchangeSegmentVersion;
  header->member_count = geometry.member_count;
  header->node_count = geometry.node_count;
  header->node_index = geometry.node_index;
  header->segment_bytes =
      RankExchangeView::SegmentBytes(geometry.member_count, geometry.node_count);
  header->limit_bytes = geometry.limit_bytes;
  header->flat_bytes = geometry.flat_bytes;
  return RankExchangeView(base, geometry);
}

absl::StatusOr<RankExchangeView> ViewRankExchangeSegment(std::byte* base,
                                                         std::uint64_t mapped_bytes) {
  if (mapped_bytes < sizeof(RankExchangeHeader)) {
    return absl::InvalidArgumentError("ringd's segment of the rank exchange is too short");
  }
  // Other members may write here: each field is read once.
  RankExchangeHeader header = *reinterpret_cast<const RankExchangeHeader*>(base);
  if (header.magic != kRankExchangeMagic) {
    return absl::InvalidArgumentError("ringd's segment of the rank exchange makes no sense");
  }
  if (header.version != kRankExchangeSegmentVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("ringd's segment of the rank exchange has version ", header.version,
                     ", this libringd speaks version ", kRankExchangeSegmentVersion));
  }
  const bool sensible =
      header.member_count >= 1 && header.member_count <= kRankExchangeMostMembers &&
      header.node_count >= 2 && header.node_count <= kRankExchangeMostNodes &&
      header.node_index < header.node_count && header.limit_bytes <= kRankExchangeMostBytes &&
      header.flat_bytes <= header.limit_bytes &&
      (header.node_count > 2 || header.flat_bytes == header.limit_bytes) &&
      header.segment_bytes ==
          RankExchangeView::SegmentBytes(header.member_count, header.node_count) &&
      header.segment_bytes <= mapped_bytes;
  if (!sensible)
    return absl::InvalidArgumentError("ringd's segment of the rank exchange makes no sense");
  return RankExchangeView(base, {header.member_count, header.node_count, header.node_index,
                                 static_cast<std::uint32_t>(header.limit_bytes),
                                 static_cast<std::uint32_t>(header.flat_bytes)});
}

}  // namespace ringd
