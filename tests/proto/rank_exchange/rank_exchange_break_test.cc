// What becomes of operations when a connection breaks, or carries nonsense.
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <vector>

#include "tests/proto/rank_exchange/rank_exchange_nodes.h"

namespace ringd {
namespace {

using testing::DriveOnce;
using testing::Floats;
using testing::kKey;
using testing::RankExchangeNodes;

TEST_CASE("Nonsense from a node ends the rank exchange, for the others with the hub's decision") {
  RankExchangeNodes nodes(3);
  RankExchangeMessage message{};
  message.magic = kRankExchangeMessageMagic;
  message.kind = RankExchangeMessageKind::kInput;
  message.signature = kKey.signature;
  SECTION("a wrong magic") { message.magic = 1; }
  SECTION("too long a payload") { message.payload_bytes = kRankExchangeMostBytes + 1; }
  SECTION("what only the hub says") { message.kind = RankExchangeMessageKind::kResult; }
  SECTION("an unknown kind") { message.kind = static_cast<RankExchangeMessageKind>(77); }
  std::uint32_t hub = 0;
  std::uint32_t first = 0;
  REQUIRE(nodes.Member(0).Contribute(Floats(kKey, {1}), hub) == RankExchangeOutcome::kPending);
  REQUIRE(nodes.Member(1).Contribute(Floats(kKey, {1}), first) == RankExchangeOutcome::kPending);
  REQUIRE(::send(nodes.Connection(2, 0), &message, sizeof(message), 0) == sizeof(message));
  DriveOnce(nodes.Member(0));
  CHECK(nodes.Member(0).Look(hub) == RankExchangeOutcome::kGivenUp);
  CHECK(nodes.Member(0).WhyBroken().reason == RankExchangeBreak::Reason::kProtocol);
  CHECK(nodes.Member(0).WhyBroken().node == 2);
  DriveOnce(nodes.Member(1), RankExchange::kTurn);
  CHECK(nodes.Member(1).Look(first) == RankExchangeOutcome::kGivenUp);
  CHECK(nodes.Member(1).WhyBroken().reason == RankExchangeBreak::Reason::kStopped);
  CHECK_FALSE(nodes.Member(1).Usable());
  CHECK(nodes.Member(1).Contribute(Floats({8, 0}, {1}), first) == RankExchangeOutcome::kGivenUp);
}

TEST_CASE("A part that comes twice is nonsense") {
  RankExchangeNodes nodes(2);
  std::uint32_t cell = 0;
  RankExchangeMessage message{};
  message.magic = kRankExchangeMessageMagic;
  message.kind = RankExchangeMessageKind::kInput;
  message.signature = kKey.signature;
  for (int i = 0; i < 2; ++i) {
    REQUIRE(::send(nodes.Connection(1, 0), &message, sizeof(message), 0) == sizeof(message));
  }
  DriveOnce(nodes.Member(0));
  CHECK(nodes.Member(0).WhyBroken().reason == RankExchangeBreak::Reason::kProtocol);
  RankExchangeContribution barrier;
  barrier.key = kKey;
  CHECK(nodes.Member(0).Contribute(barrier, cell) == RankExchangeOutcome::kGivenUp);
}

TEST_CASE("Without the hub's decision a node that has sent can't know, and says what broke") {
  RankExchangeNodes nodes(2);
  std::uint32_t cell = 0;
  REQUIRE(nodes.Member(1).Contribute(Floats(kKey, {1}), cell) == RankExchangeOutcome::kPending);
  REQUIRE(::shutdown(nodes.Connection(0, 1), SHUT_RDWR) == 0);
  DriveOnce(nodes.Member(1), RankExchange::kTurn);
  CHECK(nodes.Member(1).WhyBroken().reason == RankExchangeBreak::Reason::kConnection);
  CHECK(nodes.Member(1).Look(cell) == RankExchangeOutcome::kPending);
  CHECK(nodes.Member(1).Contribute(Floats({8, 0}, {1}), cell) == RankExchangeOutcome::kGivenUp);
}

TEST_CASE("Of a pair neither knows what became of its input when the other hangs up") {
  RankExchangeNodes nodes(2);
  const std::uint32_t node = GENERATE(0U, 1U);
  std::uint32_t cell = 0;
  REQUIRE(nodes.Member(node).Contribute(Floats(kKey, {1}), cell) == RankExchangeOutcome::kPending);
  REQUIRE(::shutdown(nodes.Connection(1 - node, node), SHUT_RDWR) == 0);
  DriveOnce(nodes.Member(node));
  CHECK(nodes.Member(node).WhyBroken().reason == RankExchangeBreak::Reason::kConnection);
  CHECK(nodes.Member(node).Look(cell) == RankExchangeOutcome::kPending);
}

TEST_CASE("A node that hangs up makes the hub give up what lacks it") {
  RankExchangeNodes nodes(3);
  std::uint32_t cell = 0;
  REQUIRE(nodes.Member(0).Contribute(Floats(kKey, {1}), cell) == RankExchangeOutcome::kPending);
  REQUIRE(::shutdown(nodes.Connection(1, 0), SHUT_RDWR) == 0);
  DriveOnce(nodes.Member(0));
  CHECK(nodes.Member(0).Look(cell) == RankExchangeOutcome::kGivenUp);
}

TEST_CASE("A connection that takes nothing more is given up, not waited for") {
  RankExchangeNodes nodes(2);
  std::vector<std::byte> full(1 << 16);
  while (::send(nodes.Connection(1, 0), full.data(), full.size(), MSG_DONTWAIT) > 0) {
  }
  std::uint32_t cell = 0;
  CHECK(nodes.Member(1).Contribute(Floats(kKey, {1}), cell) == RankExchangeOutcome::kGivenUp);
  CHECK(nodes.Member(1).WhyBroken().error == ETIMEDOUT);
  // And the other side hears of it, after what had been sent.
  std::vector<std::byte> sent(1 << 20);
  ssize_t received = 1;
  while (received > 0) received = ::recv(nodes.Connection(0, 1), sent.data(), sent.size(), 0);
  CHECK(received == 0);
}

TEST_CASE("A node to which the hub can't send the result learns that it will not come") {
  RankExchangeNodes nodes(3);
  std::uint32_t hub = 0;
  std::uint32_t stuck = 0;
  std::uint32_t other = 0;
  REQUIRE(nodes.Member(1).Contribute(Floats(kKey, {1}), stuck) == RankExchangeOutcome::kPending);
  REQUIRE(nodes.Member(2).Contribute(Floats(kKey, {1}), other) == RankExchangeOutcome::kPending);
  DriveOnce(nodes.Member(0));
  std::vector<std::byte> full(1 << 16);
  while (::send(nodes.Connection(0, 1), full.data(), full.size(), MSG_DONTWAIT) > 0) {
  }
  CHECK(nodes.Member(0).Contribute(Floats(kKey, {1}), hub) == RankExchangeOutcome::kCompleted);
  DriveOnce(nodes.Member(2), RankExchange::kTurn);
  CHECK(nodes.Member(2).Look(other) == RankExchangeOutcome::kCompleted);
  // What filled the connection is no message.
  DriveOnce(nodes.Member(1), RankExchange::kTurn);
  CHECK_FALSE(nodes.Member(1).Usable());
  CHECK(nodes.Member(1).Look(stuck) == RankExchangeOutcome::kPending);
}

}  // namespace
}  // namespace ringd
