#include "proto/shm/session_segment.h"

#include "absl/strings/str_cat.h"

namespace ringd {

void InitializeSessionSegment(std::byte* base, const SessionSegmentLayout& layout,
                              std::uint32_t session, std::uint64_t arena_bytes) noexcept {
  auto& header = *reinterpret_cast<SessionHeader*>(base);
  header.magic = kSessionSegmentMagic;
  header.version = kSessionSegmentVersion;
  header.session = session;
  header.segment_bytes = layout.segment_bytes();
  header.arena_bytes = arena_bytes;
  header.submission_capacity = layout.submission_capacity;
  header.completion_capacity = layout.completion_capacity;
  header.submission_ring_offset = layout.submission_ring_offset();
  header.completion_ring_offset = layout.completion_ring_offset();
  header.error_text_offset = layout.error_text_offset();
  header.staging_progress_offset = layout.staging_progress_offset();
  header.scales_offset = layout.scales_offset();
  header.trace_ring_offset = layout.trace_ring_offset();
}

absl::Status CheckSessionSegment(const SessionHeader& header, std::uint64_t mapped_bytes) {
  if (mapped_bytes < sizeof(SessionHeader) || header.magic != kSessionSegmentMagic) {
    return absl::InvalidArgumentError("the session segment does not begin with ringd's magic");
  }
  if (header.version != kSessionSegmentVersion) {
    return absl::FailedPreconditionError(absl::StrCat("session segment version ", header.version,
                                                      " from ringd, this library speaks version ",
                                                      kSessionSegmentVersion));
  }
  const SessionSegmentLayout layout{header.submission_capacity, header.completion_capacity};
  const bool fits = IsPowerOfTwo(layout.submission_capacity) &&
                    IsPowerOfTwo(layout.completion_capacity) &&
                    layout.completion_capacity >= layout.submission_capacity &&
                    header.submission_ring_offset == layout.submission_ring_offset() &&
                    header.completion_ring_offset == layout.completion_ring_offset() &&
                    header.error_text_offset == layout.error_text_offset() &&
                    header.staging_progress_offset == layout.staging_progress_offset() &&
                    header.scales_offset == layout.scales_offset() &&
                    header.trace_ring_offset == layout.trace_ring_offset() &&
                    layout.segment_bytes() <= mapped_bytes;
  if (!fits) return absl::InvalidArgumentError("the session segment's layout makes no sense");
  return absl::OkStatus();
}

}  // namespace ringd
