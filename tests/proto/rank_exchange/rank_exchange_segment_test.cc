#include "proto/rank_exchange/rank_exchange_segment.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstddef>
#include <string>
#include <vector>

namespace ringd {
namespace {

struct alignas(kCacheLineBytes) Line {
  std::byte bytes[kCacheLineBytes];
};

std::vector<Line> Memory(std::uint32_t members, std::uint32_t nodes) {
  return std::vector<Line>(RankExchangeView::SegmentBytes(members, nodes) / sizeof(Line) + 1);
}

TEST_CASE("A member sees what ringd has laid out") {
  std::vector<Line> memory = Memory(3, 4);
  std::byte* const base = memory.front().bytes;
  InitializeRankExchangeSegment(base, {3, 4, 2, 4096, 1024});
  const auto view = ViewRankExchangeSegment(base, RankExchangeView::SegmentBytes(3, 4));
  REQUIRE(view.ok());
  CHECK(view->member_count() == 3);
  CHECK(view->node_count() == 4);
  CHECK(view->node_index() == 2);
  CHECK(view->limit_bytes() == 4096);
  CHECK(view->flat_bytes() == 1024);
  CHECK(view->TreeOf(1024) == RankExchangeTree::kFlat);
  CHECK(view->TreeOf(1025) == RankExchangeTree::kKnomial);
  CHECK_FALSE(view->is_hub());
}

TEST_CASE("Nothing overlaps, and nothing lies outside") {
  std::vector<Line> memory = Memory(3, 4);
  std::byte* const base = memory.front().bytes;
  const RankExchangeView view = InitializeRankExchangeSegment(
      base, {3, 4, 0, kRankExchangeMostBytes, kRankExchangeMostBytes});
  std::vector<int> owners(RankExchangeView::SegmentBytes(3, 4), 0);
  const auto claim = [&](const void* begin, std::size_t bytes) {
    const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(begin) - base);
    REQUIRE(offset + bytes <= owners.size());
    for (std::size_t i = 0; i < bytes; ++i) ++owners[offset + i];
  };
  claim(base, sizeof(RankExchangeHeader));
  claim(&view.control(), sizeof(RankExchangeControl));
  for (std::uint32_t m = 0; m < 3; ++m) claim(&view.Member(m), sizeof(RankExchangeMember));
  for (std::uint32_t n = 0; n < 4; ++n) claim(&view.Inbox(n), sizeof(RankExchangeInbox));
  for (std::uint32_t c = 0; c < kRankExchangeCells; ++c) {
    claim(&view.Cell(c), sizeof(RankExchangeCell));
    for (std::uint32_t m = 0; m < 3; ++m) claim(view.MemberPayload(c, m), kRankExchangeMostBytes);
    for (std::uint32_t n = 0; n < 4; ++n) claim(view.NodePayload(c, n), kRankExchangeMostBytes);
    claim(view.Result(c), kRankExchangeMostBytes);
  }
  CHECK(std::count(owners.begin(), owners.end(), 1) == static_cast<std::ptrdiff_t>(owners.size()));
}

TEST_CASE("What makes no sense is refused") {
  using Header = RankExchangeHeader;
  struct Wrong {
    const char* what;
    void (*spoil)(Header&);
  };
  const Wrong wrong = GENERATE(
      Wrong{"magic", [](Header& header) { header.magic = 1; }},
      Wrong{"no members", [](Header& header) { header.member_count = 0; }},
      Wrong{"members", [](Header& header) { header.member_count = kRankExchangeMostMembers + 1; }},
      Wrong{"one node", [](Header& header) { header.node_count = 1; }},
      Wrong{"nodes", [](Header& header) { header.node_count = kRankExchangeMostNodes + 1; }},
      Wrong{"node index", [](Header& header) { header.node_index = 2; }},
      Wrong{"limit", [](Header& header) { header.limit_bytes = kRankExchangeMostBytes + 1; }},
      Wrong{"flat tree beyond the limit", [](Header& header) { header.flat_bytes = 65; }},
      Wrong{"another tree of two nodes", [](Header& header) { header.flat_bytes = 63; }},
      Wrong{"size", [](Header& header) { header.segment_bytes -= 64; }});
  INFO(wrong.what);
  std::vector<Line> memory = Memory(2, 2);
  std::byte* const base = memory.front().bytes;
  const std::uint64_t bytes = RankExchangeView::SegmentBytes(2, 2);
  InitializeRankExchangeSegment(base, {2, 2, 0, 64, 64});
  REQUIRE(ViewRankExchangeSegment(base, bytes).ok());
  wrong.spoil(*reinterpret_cast<Header*>(base));
  CHECK(ViewRankExchangeSegment(base, bytes).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("A mapping that is shorter than the segment is refused") {
  std::vector<Line> memory = Memory(2, 2);
  std::byte* const base = memory.front().bytes;
  InitializeRankExchangeSegment(base, {2, 2, 0, 64, 64});
  CHECK_FALSE(ViewRankExchangeSegment(base, RankExchangeView::SegmentBytes(2, 2) - 1).ok());
  CHECK_FALSE(ViewRankExchangeSegment(base, sizeof(RankExchangeHeader) - 1).ok());
}

TEST_CASE("Another version is named") {
  std::vector<Line> memory = Memory(2, 2);
  std::byte* const base = memory.front().bytes;
  InitializeRankExchangeSegment(base, {2, 2, 0, 64, 64});
  reinterpret_cast<RankExchangeHeader*>(base)->version = 99;
  const auto view = ViewRankExchangeSegment(base, RankExchangeView::SegmentBytes(2, 2));
  CHECK(view.status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(std::string(view.status().message()).find("99") != std::string::npos);
}

}  // namespace
}  // namespace ringd
