// What becomes of operations when a connection breaks, or carries nonsense.
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <vector>

#include "tests/proto/fast_path/fast_path_nodes.h"

namespace ringd {
namespace {

using testing::DriveOnce;
using testing::FastPathNodes;
using testing::Floats;
using testing::kKey;

TEST_CASE("Nonsense from a node ends the fast path, for the others with the root's word") {
  FastPathNodes nodes(3);
  FastPathMessage message{};
  message.magic = kFastPathMessageMagic;
  message.kind = FastPathMessageKind::kInput;
  message.signature = kKey.signature;
  SECTION("a wrong magic") { message.magic = 1; }
  SECTION("too long a payload") { message.payload_bytes = kFastPathMostBytes + 1; }
  SECTION("what only the root says") { message.kind = FastPathMessageKind::kResult; }
  SECTION("an unknown kind") { message.kind = static_cast<FastPathMessageKind>(77); }
  std::uint32_t root = 0;
  std::uint32_t first = 0;
  REQUIRE(nodes.Member(0).Contribute(Floats(kKey, {1}), root) == FastPathOutcome::kPending);
  REQUIRE(nodes.Member(1).Contribute(Floats(kKey, {1}), first) == FastPathOutcome::kPending);
  REQUIRE(::send(nodes.Connection(2, 0), &message, sizeof(message), 0) == sizeof(message));
  DriveOnce(nodes.Member(0));
  CHECK(nodes.Member(0).Look(root) == FastPathOutcome::kGivenUp);
  CHECK(nodes.Member(0).WhyBroken().reason == FastPathBreak::Reason::kProtocol);
  CHECK(nodes.Member(0).WhyBroken().node == 2);
  DriveOnce(nodes.Member(1), FastPathExchange::kTurn);
  CHECK(nodes.Member(1).Look(first) == FastPathOutcome::kGivenUp);
  CHECK(nodes.Member(1).WhyBroken().reason == FastPathBreak::Reason::kStopped);
  CHECK_FALSE(nodes.Member(1).Usable());
  CHECK(nodes.Member(1).Contribute(Floats({8, 0}, {1}), first) == FastPathOutcome::kGivenUp);
}

TEST_CASE("A part that comes twice is nonsense") {
  FastPathNodes nodes(2);
  std::uint32_t cell = 0;
  FastPathMessage message{};
  message.magic = kFastPathMessageMagic;
  message.kind = FastPathMessageKind::kInput;
  message.signature = kKey.signature;
  for (int i = 0; i < 2; ++i) {
    REQUIRE(::send(nodes.Connection(1, 0), &message, sizeof(message), 0) == sizeof(message));
  }
  DriveOnce(nodes.Member(0));
  CHECK(nodes.Member(0).WhyBroken().reason == FastPathBreak::Reason::kProtocol);
  FastPathContribution barrier;
  barrier.key = kKey;
  CHECK(nodes.Member(0).Contribute(barrier, cell) == FastPathOutcome::kGivenUp);
}

TEST_CASE("Without the root's word a node that has sent can't know, and says what broke") {
  FastPathNodes nodes(2);
  std::uint32_t cell = 0;
  REQUIRE(nodes.Member(1).Contribute(Floats(kKey, {1}), cell) == FastPathOutcome::kPending);
  REQUIRE(::shutdown(nodes.Connection(0, 1), SHUT_RDWR) == 0);
  DriveOnce(nodes.Member(1), FastPathExchange::kTurn);
  CHECK(nodes.Member(1).WhyBroken().reason == FastPathBreak::Reason::kConnection);
  CHECK(nodes.Member(1).Look(cell) == FastPathOutcome::kPending);
  CHECK(nodes.Member(1).Contribute(Floats({8, 0}, {1}), cell) == FastPathOutcome::kGivenUp);
}

TEST_CASE("Of a pair neither knows what became of its input when the other hangs up") {
  FastPathNodes nodes(2);
  const std::uint32_t node = GENERATE(0U, 1U);
  std::uint32_t cell = 0;
  REQUIRE(nodes.Member(node).Contribute(Floats(kKey, {1}), cell) == FastPathOutcome::kPending);
  REQUIRE(::shutdown(nodes.Connection(1 - node, node), SHUT_RDWR) == 0);
  DriveOnce(nodes.Member(node));
  CHECK(nodes.Member(node).WhyBroken().reason == FastPathBreak::Reason::kConnection);
  CHECK(nodes.Member(node).Look(cell) == FastPathOutcome::kPending);
}

TEST_CASE("A node that hangs up makes the root give up what lacks it") {
  FastPathNodes nodes(3);
  std::uint32_t cell = 0;
  REQUIRE(nodes.Member(0).Contribute(Floats(kKey, {1}), cell) == FastPathOutcome::kPending);
  REQUIRE(::shutdown(nodes.Connection(1, 0), SHUT_RDWR) == 0);
  DriveOnce(nodes.Member(0));
  CHECK(nodes.Member(0).Look(cell) == FastPathOutcome::kGivenUp);
}

TEST_CASE("A connection that takes nothing more is given up, not waited for") {
  FastPathNodes nodes(2);
  std::vector<std::byte> full(1 << 16);
  while (::send(nodes.Connection(1, 0), full.data(), full.size(), MSG_DONTWAIT) > 0) {
  }
  std::uint32_t cell = 0;
  CHECK(nodes.Member(1).Contribute(Floats(kKey, {1}), cell) == FastPathOutcome::kGivenUp);
  CHECK(nodes.Member(1).WhyBroken().error == ETIMEDOUT);
  // And the other side hears of it, after what had been sent.
  std::vector<std::byte> sent(1 << 20);
  ssize_t received = 1;
  while (received > 0) received = ::recv(nodes.Connection(0, 1), sent.data(), sent.size(), 0);
  CHECK(received == 0);
}

TEST_CASE("A node to which the root can't send the result learns that it will not come") {
  FastPathNodes nodes(3);
  std::uint32_t root = 0;
  std::uint32_t stuck = 0;
  std::uint32_t other = 0;
  REQUIRE(nodes.Member(1).Contribute(Floats(kKey, {1}), stuck) == FastPathOutcome::kPending);
  REQUIRE(nodes.Member(2).Contribute(Floats(kKey, {1}), other) == FastPathOutcome::kPending);
  DriveOnce(nodes.Member(0));
  std::vector<std::byte> full(1 << 16);
  while (::send(nodes.Connection(0, 1), full.data(), full.size(), MSG_DONTWAIT) > 0) {
  }
  CHECK(nodes.Member(0).Contribute(Floats(kKey, {1}), root) == FastPathOutcome::kCompleted);
  DriveOnce(nodes.Member(2), FastPathExchange::kTurn);
  CHECK(nodes.Member(2).Look(other) == FastPathOutcome::kCompleted);
  // What filled the connection is no message.
  DriveOnce(nodes.Member(1), FastPathExchange::kTurn);
  CHECK_FALSE(nodes.Member(1).Usable());
  CHECK(nodes.Member(1).Look(stuck) == FastPathOutcome::kPending);
}

}  // namespace
}  // namespace ringd
