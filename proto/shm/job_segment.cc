#include "proto/shm/job_segment.h"

#include "absl/strings/str_cat.h"

namespace ringd {

void InitializeJobSegment(std::byte* base, std::span<const std::int32_t> ranks) noexcept {
  const auto member_count = static_cast<std::uint32_t>(ranks.size());
  auto& header = *reinterpret_cast<JobSegmentHeader*>(base);
  header.magic = kJobSegmentMagic;
  header.version = kJobSegmentVersion;
  header.member_count = member_count;
  header.segment_bytes = JobSegmentView::SegmentBytes(member_count);
  const JobSegmentView view(base, member_count);
  for (std::size_t m = 0; m < ranks.size(); ++m) view.Member(m).rank = ranks[m];
}

absl::Status CheckJobSegment(const JobSegmentHeader& header, std::uint64_t mapped_bytes) {
  if (header.magic != kJobSegmentMagic) {
    return absl::InvalidArgumentError("this is no job segment of ringd");
  }
  if (header.version != kJobSegmentVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("ringd's job segments have version ", header.version,
                     ", this library knows version ", kJobSegmentVersion));
  }
  if (header.member_count == 0 || header.member_count > kMaxLocalMembers ||
      header.segment_bytes != JobSegmentView::SegmentBytes(header.member_count) ||
      header.segment_bytes != mapped_bytes) {
    return absl::InvalidArgumentError("the job segment's sizes don't fit together");
  }
  return absl::OkStatus();
}

}  // namespace ringd
