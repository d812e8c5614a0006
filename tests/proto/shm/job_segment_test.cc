#include "proto/shm/job_segment.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace ringd {
namespace {

// As much of a segment as its header and members take.
struct Segment {
  explicit Segment(std::uint32_t members) : lines(1 + 3 * members) {
    const std::vector<std::int32_t> ranks(members, 7);
    InitializeJobSegment(reinterpret_cast<std::byte*>(lines.data()), ranks);
  }
  JobSegmentHeader& header() { return *reinterpret_cast<JobSegmentHeader*>(lines.data()); }
  struct alignas(kCacheLineBytes) Line {
    std::byte bytes[kCacheLineBytes] = {};
  };
  std::vector<Line> lines;
};

TEST_CASE("JobSegment: a fresh one is accepted, and nobody has offered its memory") {
  Segment segment(3);
  CHECK(CheckJobSegment(segment.header(), JobSegmentView::SegmentBytes(3)).ok());
  const JobSegmentView view(reinterpret_cast<std::byte*>(segment.lines.data()), 3);
  for (std::uint32_t m = 0; m < 3; ++m) {
    CHECK(Reach::FromWord(view.Member(m).reach).state == Reach::State::kUnknown);
  }
}

TEST_CASE("JobSegment: one of another version is refused, with both versions named") {
  Segment segment(2);
  segment.header().version = kJobSegmentVersion - 1;
  const absl::Status status = CheckJobSegment(segment.header(), JobSegmentView::SegmentBytes(2));
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
  const std::string text(status.message());
  CHECK(text.find("version " + std::to_string(kJobSegmentVersion - 1)) != std::string::npos);
  CHECK(text.find("version " + std::to_string(kJobSegmentVersion)) != std::string::npos);
}

TEST_CASE(
    "Spoiled: what was said comes back, and an occurrence that was not spoiled is never named") {
  const Spoiled spoiled{(std::uint64_t{1} << 40) + 3, 14, 191};
  const Spoiled read = Spoiled::FromWord(spoiled.ToWord());
  CHECK(read.occurrence == spoiled.occurrence);
  CHECK(read.error == 14);
  CHECK(read.member == 191);
  CHECK(Spoiled{0, 0, 0}.ToWord() != 0);
}

TEST_CASE("Reach: what was said comes back") {
  const Reach reach = Reach::FromWord(Reach{Reach::State::kCannot, 1, 191}.ToWord());
  CHECK(reach.state == Reach::State::kCannot);
  CHECK(reach.error == 1);
  CHECK(reach.member == 191);
}

TEST_CASE("JobSegment: its parts follow each other and do not meet") {
  constexpr std::uint32_t kMembers = 3;
  std::byte* const base = nullptr;
  const JobSegmentView view(base, kMembers);
  const auto offset = [&](const auto& object) {
    return static_cast<std::uint64_t>(reinterpret_cast<const std::byte*>(&object) - base);
  };
  CHECK(offset(view.InFlight(0, 0)) == offset(view.Member(kMembers - 1)) + sizeof(SharedMember));
  CHECK(offset(view.InFlight(1, 0)) == offset(view.InFlight(0, kMaxLocalTensors - 1)) + 8);
  const std::uint64_t tensors = JobSegmentView::TensorsOffset(kMembers);
  CHECK(tensors == offset(view.InFlight(kMembers - 1, kMaxLocalTensors - 1)) + 8);
  CHECK(tensors % kCacheLineBytes == 0);
  CHECK(offset(view.Tensor(0)) == tensors);
  CHECK(offset(view.Tensor(1)) ==
        offset(view.Slot(0, kMembers - 1, kOccurrencesInFlight - 1)) + sizeof(SubmissionSlot));
  CHECK(JobSegmentView::SegmentBytes(kMembers) ==
        offset(view.Slot(kMaxLocalTensors - 1, kMembers - 1, kOccurrencesInFlight - 1)) +
            sizeof(SubmissionSlot));
}

}  // namespace
}  // namespace ringd
