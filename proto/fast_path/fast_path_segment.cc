#include "proto/fast_path/fast_path_segment.h"

#include <new>

#include "absl/strings/str_cat.h"

namespace ringd {

FastPathView InitializeFastPathSegment(std::byte* base, const FastPathGeometry& geometry) noexcept {
  auto* header = new (base) FastPathHeader{};
  header->magic = kFastPathMagic;
  header->version = kFastPathSegmentVersion;
  header->member_count = geometry.member_count;
  header->node_count = geometry.node_count;
  header->node_index = geometry.node_index;
  header->segment_bytes = FastPathView::SegmentBytes(geometry.member_count, geometry.node_count);
  header->limit_bytes = geometry.limit_bytes;
  header->flat_bytes = geometry.flat_bytes;
  return FastPathView(base, geometry);
}

absl::StatusOr<FastPathView> ViewFastPathSegment(std::byte* base, std::uint64_t mapped_bytes) {
  if (mapped_bytes < sizeof(FastPathHeader)) {
    return absl::InvalidArgumentError("ringd's fast path segment is too short");
  }
  // Other members may write here: each field is read once.
  FastPathHeader header = *reinterpret_cast<const FastPathHeader*>(base);
  if (header.magic != kFastPathMagic) {
    return absl::InvalidArgumentError("ringd's fast path segment makes no sense");
  }
  if (header.version != kFastPathSegmentVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("ringd's fast path segment has version ", header.version,
                     ", this libringd speaks version ", kFastPathSegmentVersion));
  }
  const bool sensible =
      header.member_count >= 1 && header.member_count <= kFastPathMostMembers &&
      header.node_count >= 2 && header.node_count <= kFastPathMostNodes &&
      header.node_index < header.node_count && header.limit_bytes <= kFastPathMostBytes &&
      header.flat_bytes <= header.limit_bytes &&
      (header.node_count > 2 || header.flat_bytes == header.limit_bytes) &&
      header.segment_bytes == FastPathView::SegmentBytes(header.member_count, header.node_count) &&
      header.segment_bytes <= mapped_bytes;
  if (!sensible) return absl::InvalidArgumentError("ringd's fast path segment makes no sense");
  return FastPathView(base, {header.member_count, header.node_count, header.node_index,
                             static_cast<std::uint32_t>(header.limit_bytes),
                             static_cast<std::uint32_t>(header.flat_bytes)});
}

}  // namespace ringd
