// What keeps a pair's connection open for the next message.
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <optional>
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

// Segments of so many bytes, less those of TCP's options.
constexpr int kSegment = 1400;
constexpr milliseconds kAnyTime{0};

struct Pair : FastPathNodes {
  Pair() : FastPathNodes(2, 1, kFastPathMostBytes, std::nullopt, kSegment) {}
  // Once what has been sent is acknowledged, for which there are some seconds.
  bool Pad(std::uint32_t node, std::uint64_t bytes) {
    const auto end = Clock::now() + std::chrono::seconds(5);
    while (!Ringd(node).Pad(bytes, kAnyTime)) {
      if (Clock::now() > end) return false;
      ::usleep(100);
    }
    return true;
  }
};

TEST_CASE("Padding is dropped, and operations go on around it") {
  Pair nodes;
  const std::vector<float> values(kFastPathMostBytes / sizeof(float), 1.5F);
  std::uint32_t cells[2];
  REQUIRE(nodes.Pad(0, kFastPathMostBytes));
  REQUIRE(nodes.Member(0).Contribute(Floats(kKey, values), cells[0]) == FastPathOutcome::kPending);
  REQUIRE(nodes.Pad(1, 1000));
  REQUIRE(nodes.Member(1).Contribute(Floats(kKey, values), cells[1]) == FastPathOutcome::kPending);
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

TEST_CASE("Each padding waits for one of the other's") {
  Pair nodes;
  // However long it waits.
  const auto never = [&](std::uint32_t node) {
    for (int i = 0; i < 50; ++i) {
      DriveOnce(nodes.Ringd(node));
      if (nodes.Ringd(node).Pad(100, kAnyTime)) return false;
      ::usleep(1000);
    }
    return true;
  };
  CHECK_FALSE(nodes.Ringd(0).OwesPadding());
  CHECK(nodes.Pad(0, 100));
  CHECK(never(0));
  DriveOnce(nodes.Ringd(1), milliseconds(1000));
  CHECK(nodes.Ringd(1).OwesPadding());
  CHECK(nodes.Pad(1, 0));
  CHECK_FALSE(nodes.Ringd(1).OwesPadding());
  CHECK(nodes.Pad(1, 100));
  CHECK(never(1));
  while (nodes.View(0).control().paddings < 2) DriveOnce(nodes.Ringd(0), milliseconds(100));
  CHECK(nodes.Ringd(0).OwesPadding());
  CHECK(nodes.Pad(0, 100));
}

TEST_CASE("No padding gets into the middle of a message, nor where it is no use") {
  SECTION("somebody has the lock") {
    Pair pair;
    pair.View(0).control().lock = 1;
    CHECK_FALSE(pair.Ringd(0).Pad(100, kAnyTime));
    pair.View(0).control().lock = kFastPathNobody;
    CHECK(pair.Pad(0, 100));
  }
  SECTION("it is broken") {
    Pair pair;
    ::shutdown(pair.Connection(0, 1), SHUT_RDWR);
    DriveOnce(pair.Ringd(0));
    REQUIRE_FALSE(pair.Ringd(0).Usable());
    CHECK_FALSE(pair.Ringd(0).Pad(100, kAnyTime));
  }
  SECTION("of more than two nodes") {
    FastPathNodes three(3, 1, kFastPathMostBytesOfMany, std::nullopt, kSegment);
    CHECK_FALSE(three.Ringd(0).Pad(100, kAnyTime));
    CHECK_FALSE(three.Ringd(0).ExceedsFirstWindow(kFastPathMostBytes));
  }
}

TEST_CASE("Padding waits for nothing that is stuck: the connection goes on") {
  Pair pair;
  // The other reads nothing, until nothing more has room.
  const std::vector<std::byte> stuck(std::size_t{64} << 10);
  while (::send(pair.Connection(0, 1), stuck.data(), stuck.size(), MSG_DONTWAIT) > 0) {
  }
  CHECK_FALSE(pair.Ringd(0).Pad(kFastPathMostBytes, kAnyTime));
  CHECK(pair.Ringd(0).Usable());
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

TEST_CASE("What is longer than the first window needs padding, when nothing was sent for long") {
  Pair nodes;
  CHECK(nodes.Ringd(0).ExceedsFirstWindow(10 * kSegment));
  CHECK_FALSE(nodes.Ringd(0).ExceedsFirstWindow(10 * (kSegment - 100)));
  CHECK_FALSE(nodes.Ringd(0).ExceedsFirstWindow(0));
  REQUIRE(nodes.Pad(0, 100));
  DriveOnce(nodes.Ringd(1), milliseconds(1000));
  REQUIRE(nodes.Pad(1, 100));
  DriveOnce(nodes.Ringd(0), milliseconds(1000));
  CHECK_FALSE(nodes.Ringd(0).Pad(100, std::chrono::hours(1)));
  ::usleep(60'000);
  CHECK(nodes.Ringd(0).Pad(100, milliseconds(50)));
}

TEST_CASE("A connection without TCP's windows needs no padding") {
  FastPathNodes nodes(2);
  CHECK_FALSE(nodes.Ringd(0).ExceedsFirstWindow(kFastPathMostBytes));
  CHECK_FALSE(nodes.Ringd(0).Pad(100, kAnyTime));
}

}  // namespace
}  // namespace ringd
