#include "daemon/lanes/rank_exchange/rank_exchange_setup.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/daemon/lanes/rank_exchange/opening_nodes.h"

namespace ringd {
namespace {

using Catch::Matchers::Contains;
using State = RankExchangeSetup::State;

constexpr auto kLongAfter = RankExchangeSetup::kPatience + RankExchangeSetup::kGrace;

std::string FailureOf(OpeningNodes& nodes, std::uint32_t node) {
  return std::string(nodes.Setup(node).failure().message());
}

int OptionOf(int fd, int level, int option) {
  int value = 0;
  socklen_t length = sizeof(value);
  CHECK(::getsockopt(fd, level, option, &value, &length) == 0);
  return value;
}

TEST_CASE("RankExchangeSetup: is open at all nodes when all have come, in whatever order") {
  OpeningNodes nodes(4);
  // Nodes 2 and 3 are faster than the hub.
  for (const std::uint32_t node : {3, 2, 0}) nodes.Begin(node);
  nodes.Settle(Clock::now());
  for (const std::uint32_t node : {0, 2, 3}) {
    CHECK(nodes.Setup(node).Advance(Clock::now()) == State::kPending);
  }
  nodes.Begin(1);
  REQUIRE(nodes.All(State::kOpen));

  std::vector<UniqueFd> hub = nodes.Setup(0).TakeConnections();
  REQUIRE(hub.size() == 4);
  CHECK_FALSE(hub[0].valid());
  for (std::uint32_t node = 1; node < 4; ++node) {
    std::vector<UniqueFd> other = nodes.Setup(node).TakeConnections();
    REQUIRE(other.size() == 4);
    for (std::uint32_t n = 1; n < 4; ++n) CHECK_FALSE(other[n].valid());
    // The two are ends of one connection, and nothing but what the ranks say comes over it.
    std::array<char, 8> text{};
    REQUIRE(::send(hub[node].get(), &"12345678"[0], 8, 0) == 8);
    REQUIRE(::recv(other[0].get(), text.data(), text.size(), MSG_WAITALL) == 8);
    CHECK(std::string(text.data(), text.size()) == "12345678");
    for (const int fd : {hub[node].get(), other[0].get()}) {
      CHECK((::fcntl(fd, F_GETFL) & O_NONBLOCK) == 0);
      CHECK((::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
      CHECK(OptionOf(fd, IPPROTO_TCP, TCP_NODELAY) != 0);
      CHECK(OptionOf(fd, SOL_SOCKET, SO_KEEPALIVE) != 0);
      CHECK(OptionOf(fd, IPPROTO_TCP, TCP_KEEPIDLE) == 60);
      CHECK(OptionOf(fd, IPPROTO_TCP, TCP_USER_TIMEOUT) == 40'000);
      // A wait for what does not come ends soon.
      CHECK(::recv(fd, text.data(), text.size(), 0) == -1);
    }
  }
}

TEST_CASE("RankExchangeSetup: one that does not come is named, and all do without") {
  OpeningNodes nodes(3);
  const Clock::time_point began = Clock::now();
  nodes.Begin(0, began);
  nodes.Begin(1, began);
  nodes.Settle(began);
  CHECK(nodes.Setup(0).Advance(began + RankExchangeSetup::kPatience / 2) == State::kPending);
  CHECK(nodes.Setup(0).Advance(nodes.Setup(0).Deadline()) == State::kFailed);
  CHECK(FailureOf(nodes, 0) == "no connection came from node-2 within 1000 ms");
  // The other one sees that it was closed, before its own time is over.
  CHECK(Within([&] { return nodes.Setup(1).Advance(began) == State::kFailed; }));
  CHECK_THAT(FailureOf(nodes, 1), Contains("node-0: it closed the connection"));
}

TEST_CASE("RankExchangeSetup: a hub that never answers, and one that is not there") {
  OpeningNodes nodes(2);
  const Clock::time_point began = Clock::now();
  std::string what = "it does not answer within 1500 ms";
  SECTION("it listens, but does not take part") { nodes.Begin(1, began); }
  SECTION("it takes part, and never opens") {
    nodes.Sockets(0).Open(
        {kWireId, NodeIndex(0), kKey, nodes.PlanOf(0).addresses, nodes.PlanOf(0).node_names});
    nodes.Begin(1, began);
    nodes.Settle(began);
    what = "it did not open the rank exchange within 1500 ms";
  }
  SECTION("nobody listens") {
    RankExchangePlan plan = nodes.PlanOf(1);
    plan.addresses[0] = OpenedDoor("gone").sockets->address();
    nodes.Begin(plan, began);
  }
  nodes.Advance(began);
  CHECK(nodes.Setup(1).Advance(began + RankExchangeSetup::kPatience) == State::kPending);
  CHECK(nodes.Setup(1).Advance(began + kLongAfter) == State::kFailed);
  CHECK_THAT(FailureOf(nodes, 1), Contains("node-0") && Contains(what));
}

TEST_CASE(
    "RankExchangeSetup: a node with another key, or an address that makes no sense, ends it") {
  OpeningNodes nodes(2);
  RankExchangePlan plan = nodes.PlanOf(1);
  std::string what = "refuses the key of this node";
  SECTION("another key") { plan.key = std::string(kSha256Bytes, 'x'); }
  SECTION("no address") {
    plan.addresses[0] = "node-0";
    what = "no connection to ringd on node-0";
  }
  const Clock::time_point began = Clock::now();
  nodes.Begin(0, began);
  nodes.Begin(plan, began);
  CHECK(nodes.Is(1, State::kFailed, began));
  CHECK_THAT(FailureOf(nodes, 1), Contains("node-0") && Contains(what));
}

TEST_CASE(
    "RankExchangeSetup: with the k-nomial tree each node is connected to its neighbours there, "
    "too") {
  constexpr std::uint32_t kCount = 8;
  OpeningNodes nodes(kCount, /*knomial=*/true);
  // Node 4's children are faster than it is, and it can't be done without.
  for (const std::uint32_t node : {5, 7, 0, 1, 2, 3, 6}) nodes.Begin(node);
  nodes.Settle(Clock::now());
  CHECK(nodes.Setup(0).Advance(Clock::now()) == State::kPending);
  CHECK(nodes.Setup(7).Advance(Clock::now()) == State::kPending);
  nodes.Begin(4);
  REQUIRE(nodes.All(State::kOpen));

  std::vector<std::vector<UniqueFd>> connections;
  for (std::uint32_t node = 0; node < kCount; ++node) {
    connections.push_back(nodes.Setup(node).TakeConnections());
  }
  for (std::uint32_t node = 0; node < kCount; ++node) {
    const RankExchangeNodeSet neighbours = NeighboursOf(node, kCount, true);
    for (std::uint32_t other = 0; other < kCount; ++other) {
      const bool is_neighbour = (neighbours & NodeBit(other)) != 0;
      REQUIRE(connections[node][other].valid() == is_neighbour);
      if (!is_neighbour) continue;
      const std::array<char, 2> said{static_cast<char>(node), static_cast<char>(other)};
      REQUIRE(::send(connections[node][other].get(), said.data(), said.size(), 0) == 2);
      std::array<char, 2> heard{};
      REQUIRE(::recv(connections[other][node].get(), heard.data(), 2, MSG_WAITALL) == 2);
      CHECK(heard == said);
    }
  }
}

TEST_CASE("RankExchangeSetup: of the k-nomial tree, too, one that does not come is named") {
  OpeningNodes nodes(8, /*knomial=*/true);
  const Clock::time_point began = Clock::now();
  for (const std::uint32_t node : {0, 1, 2, 3, 4, 5, 7}) nodes.Begin(node, began);
  nodes.Settle(began);
  SECTION("by the hub, and not the one that waits for it") {
    CHECK(nodes.Setup(0).Advance(nodes.Setup(0).Deadline()) == State::kFailed);
    CHECK(FailureOf(nodes, 0) == "no connection came from node-6 within 1000 ms");
    // The others hear of it before their time is over.
    for (const std::uint32_t node : {1, 2, 3, 4, 5, 7}) {
      CHECK(Within([&] {
        nodes.Advance(began);
        return nodes.Setup(node).Advance(began) == State::kFailed;
      }));
    }
  }
  SECTION("by its parent, if the hub says nothing") {
    CHECK(nodes.Setup(4).Advance(began + kLongAfter) == State::kFailed);
    CHECK(FailureOf(nodes, 4) == "no connection came from node-6 within 1500 ms");
  }
}

TEST_CASE("RankExchangeSetup: of the k-nomial tree, a parent that hangs up is named") {
  OpeningNodes nodes(8, /*knomial=*/true);
  const Clock::time_point began = Clock::now();
  for (const std::uint32_t node : {4, 5}) nodes.Begin(node, began);
  nodes.Settle(began);
  CHECK(nodes.Setup(5).Advance(began) == State::kPending);
  CHECK(nodes.Setup(4).Advance(began + kLongAfter) == State::kFailed);
  CHECK(nodes.Is(5, State::kFailed, began));
  CHECK(FailureOf(nodes, 5) == "node-4: it closed the connection");
}

TEST_CASE("RankExchangeSetup: a node that is nobody's child is hung up on; the right ones come") {
  OpeningNodes nodes(8, /*knomial=*/true);
  nodes.Begin(4);
  Member member(nodes.PlanOf(4), 3, 4);
  member.Await();
  CHECK(Within([&] {
    nodes.Advance();
    return member.HungUpOn();
  }));
}

TEST_CASE("RankExchangeSetup: the first who comes as a node keeps its place") {
  OpeningNodes nodes(3);
  nodes.Begin(0);
  Member first(nodes.PlanOf(0), 1, 0);
  first.Await();
  nodes.Settle(Clock::now());
  Member second(nodes.PlanOf(0), 1, 0);
  second.Await();
  CHECK(Within([&] {
    nodes.Advance();
    return second.HungUpOn();
  }));
  first.Say(BytesOf(kRankExchangeReady));
  nodes.Begin(2);
  CHECK(nodes.All(State::kOpen));
  CHECK(first.Heard());
}

TEST_CASE("RankExchangeSetup: a node that goes or speaks too soon ends it for all, at once") {
  OpeningNodes nodes(3);
  const Clock::time_point began = Clock::now();
  nodes.Begin(0, began);
  Member first(nodes.PlanOf(0), 1, 0);
  first.Await();
  nodes.Settle(began);
  CHECK(nodes.Setup(0).Advance(began) == State::kPending);
  std::string what;
  SECTION("goes") {
    first.HangUp();
    what = "node-1: it closed the connection";
  }
  SECTION("is the last one to be ready, and goes before it can have heard that all are") {
    Member second(nodes.PlanOf(0), 2, 0);
    second.Await();
    second.Say(BytesOf(kRankExchangeReady));
    nodes.Settle(began);
    CHECK(nodes.Setup(0).Advance(began) == State::kPending);
    first.Say(BytesOf(kRankExchangeReady));
    first.HangUp();
    what = "node-1: it closed the connection";
    CHECK(nodes.Is(0, State::kFailed, began));
  }
  SECTION("speaks before it is ready") {
    first.Say(BytesOf(kRankExchangeOpen));
    what = "node-1: it said what makes no sense";
  }
  SECTION("speaks after that") {
    first.Say(BytesOf(kRankExchangeReady));
    first.Say(BytesOf(kRankExchangeReady));
    what = "node-1: it said something that nobody waits for";
  }
  CHECK(nodes.Is(0, State::kFailed, began));
  CHECK(FailureOf(nodes, 0) == what);
}

TEST_CASE("RankExchangeSetup: a node that is never ready is named by the hub") {
  OpeningNodes nodes(2);
  const Clock::time_point began = Clock::now();
  nodes.Begin(0, began);
  Member silent(nodes.PlanOf(0), 1, 0);
  silent.Await();
  nodes.Settle(began);
  CHECK(nodes.Setup(0).Advance(began + RankExchangeSetup::kPatience) == State::kFailed);
  CHECK(FailureOf(nodes, 0) == "node-1: it was not ready within 1000 ms");
}

TEST_CASE("RankExchangeSetup: an answer that makes no sense is none") {
  OpeningNodes nodes(2);
  const Clock::time_point began = Clock::now();
  nodes.Sockets(0).Open(
      {kWireId, NodeIndex(0), kKey, nodes.PlanOf(0).addresses, nodes.PlanOf(0).node_names});
  nodes.Begin(1, began);
  std::vector<WireSockets::Event> arrivals;
  CHECK(Within([&] {
    nodes.Advance(began);
    arrivals = nodes.Sockets(0).TakeEvents(kWireId);
    return !arrivals.empty();
  }));
  REQUIRE(arrivals.size() == 1);
  CHECK(arrivals[0].node == NodeIndex(1));
  // Before it is ready nobody says anything to it.
  CHECK(Within([&] {
    nodes.Advance(began);
    pollfd ready{arrivals[0].socket.get(), POLLIN, 0};
    return ::poll(&ready, 1, 0) == 1;
  }));
  const RankExchangeSign nonsense{kRankExchangeOpen.magic, kRankExchangeWireVersion + 1};
  REQUIRE(SendWhole(arrivals[0].socket.get(), BytesOf(nonsense)).ok());
  CHECK(nodes.Is(1, State::kFailed, began));
  CHECK_THAT(FailureOf(nodes, 1), Contains("makes no sense"));
}

}  // namespace
}  // namespace ringd
