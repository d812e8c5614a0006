#include "proto/shm/session_segment.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <memory>
#include <string>

namespace ringd {
namespace {

struct Segment {
  explicit Segment(SessionSegmentLayout wanted) : layout(wanted) {
    const std::size_t bytes = (layout.segment_bytes() + 63) / 64 * 64;
    memory.reset(static_cast<std::byte*>(std::aligned_alloc(64, bytes)));
    std::fill_n(memory.get(), bytes, std::byte{0});
    InitializeSessionSegment(memory.get(), layout, 7, 4096);
  }
  SessionHeader& header() { return *reinterpret_cast<SessionHeader*>(memory.get()); }

  struct Free {
    void operator()(std::byte* pointer) const { std::free(pointer); }
  };
  SessionSegmentLayout layout;
  std::unique_ptr<std::byte, Free> memory;
};

TEST_CASE("SessionSegment: a fresh one passes the client's check, a shorter mapping does not") {
  Segment segment({64, 128});
  CHECK(CheckSessionSegment(segment.header(), segment.layout.segment_bytes()).ok());
  CHECK(absl::IsInvalidArgument(
      CheckSessionSegment(segment.header(), segment.layout.segment_bytes() - 1)));
}

TEST_CASE("SessionSegment: another version is refused and both versions are named") {
  Segment segment({64, 64});
  segment.header().version = 77;
  const absl::Status status = CheckSessionSegment(segment.header(), segment.layout.segment_bytes());
  CHECK(absl::IsFailedPrecondition(status));
  CHECK(std::string(status.message()).find("77") != std::string::npos);
  CHECK(std::string(status.message()).find(std::to_string(kSessionSegmentVersion)) !=
        std::string::npos);
}

TEST_CASE("SessionSegment: offsets, capacities and magic that make no sense are refused") {
  const auto refused = [](auto change) {
    Segment segment({64, 64});
    change(segment.header());
    return absl::IsInvalidArgument(
        CheckSessionSegment(segment.header(), segment.layout.segment_bytes()));
  };
  CHECK(refused([](SessionHeader& header) { header.magic ^= 1; }));
  CHECK(refused([](SessionHeader& header) { header.submission_capacity = 63; }));
  CHECK(refused([](SessionHeader& header) { header.completion_capacity = 32; }));
  CHECK(refused([](SessionHeader& header) { header.completion_capacity = 1u << 31; }));
  CHECK(refused([](SessionHeader& header) { header.completion_ring_offset += 64; }));
  CHECK(refused([](SessionHeader& header) { header.error_text_offset = 0; }));
  CHECK(refused([](SessionHeader& header) { header.staging_progress_offset += 64; }));
  CHECK(refused([](SessionHeader& header) { header.scales_offset += 64; }));
}

TEST_CASE("ErrorText: read under its version, gone after reuse, cut at the slot's size") {
  auto slot = std::make_unique<ErrorTextSlot>();
  const std::uint32_t first = WriteErrorText(*slot, 0, "one");
  CHECK(ReadErrorText(*slot, first) == "one");
  const std::uint32_t second = WriteErrorText(*slot, first, std::string(5000, 'x'));
  CHECK_FALSE(ReadErrorText(*slot, first).has_value());
  CHECK(ReadErrorText(*slot, second) == std::string(sizeof(slot->text), 'x'));
}

TEST_CASE("ErrorText: a length beyond the slot, as a hostile peer may write, is not followed") {
  auto slot = std::make_unique<ErrorTextSlot>();
  const std::uint32_t version = WriteErrorText(*slot, 0, "one");
  slot->length = 1u << 30;
  CHECK_FALSE(ReadErrorText(*slot, version).has_value());
}

}  // namespace
}  // namespace ringd
