// What keeps a pair's connection open for the next message.
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <vector>

#include "proto/fast_path/fast_path_exchange.h"
#include "tests/proto/fast_path/fast_path_nodes.h"

namespace ringd {
namespace {

using std::chrono::milliseconds;
using testing::DriveOnce;
using testing::FastPathNodes;
using testing::Finish;
using testing::Floats;
using testing::kKey;
using testing::ResultOf;

TEST_CASE("Padding is dropped, and operations go on around it") {
  FastPathNodes nodes(2);
  const std::vector<float> values(kFastPathMostBytes / sizeof(float), 1.5F);
  std::uint32_t cells[2];
  REQUIRE(nodes.Ringd(0).Pad(kFastPathMostBytes));
  REQUIRE(nodes.Member(0).Contribute(Floats(kKey, values), cells[0]) == FastPathOutcome::kPending);
  REQUIRE(nodes.Ringd(0).Pad(1000) == false);
  REQUIRE(nodes.Ringd(1).Pad(1000));
  REQUIRE(nodes.Member(1).Contribute(Floats(kKey, values), cells[1]) == FastPathOutcome::kPending);
  REQUIRE(nodes.Ringd(1).Pad(0) == false);
  for (std::uint32_t n = 0; n < 2; ++n) {
    REQUIRE(Finish(nodes.Member(n), cells[n]) == FastPathOutcome::kCompleted);
    CHECK(ResultOf(nodes.Member(n), cells[n], values.size()) ==
          std::vector<float>(values.size(), 3));
    CHECK(nodes.View(n).control().paddings == 1);
    CHECK(nodes.View(n).control().largest == kFastPathMostBytes);
    CHECK(nodes.View(n).control().given_up == 0);
    CHECK(testing::CellsInUse(nodes.View(n)) == 0);
  }
}

TEST_CASE("Two paddings at most lie unread") {
  FastPathNodes nodes(2);
  CHECK(nodes.Ringd(0).Pad(100));
  CHECK_FALSE(nodes.Ringd(0).Pad(100));
  DriveOnce(nodes.Ringd(1));
  CHECK(nodes.Ringd(1).Pad(100));
  CHECK(nodes.Ringd(1).Pad(100));
  for (int i = 0; i < 10; ++i) {
    DriveOnce(nodes.Ringd(1));
    CHECK_FALSE(nodes.Ringd(1).Pad(100));
  }
  DriveOnce(nodes.Ringd(0));
  CHECK(nodes.Ringd(0).Pad(100));
}

TEST_CASE("No padding gets into the middle of a message, nor where it is no use") {
  FastPathNodes pair(2);
  SECTION("somebody has the lock") {
    pair.View(0).control().lock = 1;
    CHECK_FALSE(pair.Ringd(0).Pad(100));
    pair.View(0).control().lock = kFastPathNobody;
    CHECK(pair.Ringd(0).Pad(100));
  }
  SECTION("it is broken") {
    ::shutdown(pair.Connection(0, 1), SHUT_RDWR);
    DriveOnce(pair.Ringd(0));
    REQUIRE_FALSE(pair.Ringd(0).Usable());
    CHECK_FALSE(pair.Ringd(0).Pad(100));
    CHECK_FALSE(pair.Ringd(0).NeedsPadding(kFastPathMostBytes, milliseconds(0)));
  }
  SECTION("of more than two nodes") {
    FastPathNodes three(3);
    CHECK_FALSE(three.Ringd(0).Pad(100));
    CHECK_FALSE(three.Ringd(0).NeedsPadding(kFastPathMostBytes, milliseconds(0)));
  }
}

TEST_CASE("Padding between more than two nodes makes no sense") {
  FastPathNodes nodes(3);
  FastPathMessage padding{};
  padding.magic = kFastPathMessageMagic;
  padding.kind = FastPathMessageKind::kPadding;
  REQUIRE(::write(nodes.Connection(1, 0), &padding, sizeof(padding)) == sizeof(padding));
  DriveOnce(nodes.Ringd(0));
  CHECK(nodes.Ringd(0).WhyBroken().reason == FastPathBreak::Reason::kProtocol);
}

TEST_CASE("What is longer than the first window needs padding when the connection was idle") {
  // Segments of so many bytes, less those of TCP's options.
  constexpr int kSegment = 1400;
  FastPathNodes nodes(2, 1, kFastPathMostBytes, std::nullopt, kSegment);
  const FastPathExchange& ringd = nodes.Ringd(0);
  CHECK(ringd.NeedsPadding(10 * kSegment, milliseconds(0)));
  CHECK_FALSE(ringd.NeedsPadding(10 * (kSegment - 100), milliseconds(0)));
  REQUIRE(nodes.Ringd(0).Pad(100));
  CHECK_FALSE(ringd.NeedsPadding(10 * kSegment, milliseconds(10'000)));
  ::usleep(60'000);
  CHECK(ringd.NeedsPadding(10 * kSegment, milliseconds(50)));
  // The other has sent nothing for longer; it does not matter what has come.
  CHECK(nodes.Ringd(1).NeedsPadding(10 * kSegment, milliseconds(50)));
}

TEST_CASE("A connection without TCP's windows needs no padding") {
  FastPathNodes nodes(2);
  CHECK_FALSE(nodes.Ringd(0).NeedsPadding(kFastPathMostBytes, milliseconds(0)));
}

}  // namespace
}  // namespace ringd
