#include "daemon/fast_path/fast_path_setup.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/daemon/fast_path/opening_nodes.h"

namespace ringd {
namespace {

using Catch::Matchers::Contains;
using State = FastPathSetup::State;

constexpr auto kLongAfter = FastPathSetup::kPatience + FastPathSetup::kGrace;

std::string FailureOf(OpeningNodes& nodes, std::uint32_t node) {
  return std::string(nodes.Setup(node).failure().message());
}

int OptionOf(int fd, int level, int option) {
  int value = 0;
  socklen_t length = sizeof(value);
  CHECK(::getsockopt(fd, level, option, &value, &length) == 0);
  return value;
}

TEST_CASE("FastPathSetup: is open at all nodes when all have come, in whatever order") {
  OpeningNodes nodes(4);
  // Nodes 2 and 3 are faster than the root.
  for (const std::uint32_t node : {3, 2, 0}) nodes.Begin(node);
  for (int turn = 0; turn < 20; ++turn) {
    nodes.Advance();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (const std::uint32_t node : {0, 2, 3}) {
    CHECK(nodes.Setup(node).Advance(Clock::now()) == State::kPending);
  }
  nodes.Begin(1);
  REQUIRE(nodes.All(State::kOpen));

  std::vector<UniqueFd> root = nodes.Setup(0).TakeConnections();
  REQUIRE(root.size() == 4);
  CHECK_FALSE(root[0].valid());
  for (std::uint32_t node = 1; node < 4; ++node) {
    std::vector<UniqueFd> other = nodes.Setup(node).TakeConnections();
    REQUIRE(other.size() == 4);
    for (std::uint32_t n = 1; n < 4; ++n) CHECK_FALSE(other[n].valid());
    // The two are ends of one connection, and nothing but what the ranks say comes over it.
    std::array<char, 8> text{};
    REQUIRE(::send(root[node].get(), &"12345678"[0], 8, 0) == 8);
    REQUIRE(::recv(other[0].get(), text.data(), text.size(), MSG_WAITALL) == 8);
    CHECK(std::string(text.data(), text.size()) == "12345678");
    for (const int fd : {root[node].get(), other[0].get()}) {
      CHECK((::fcntl(fd, F_GETFL) & O_NONBLOCK) == 0);
      CHECK((::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
      CHECK(OptionOf(fd, IPPROTO_TCP, TCP_NODELAY) != 0);
      CHECK(OptionOf(fd, SOL_SOCKET, SO_KEEPALIVE) != 0);
      CHECK(OptionOf(fd, IPPROTO_TCP, TCP_KEEPIDLE) == 60);
      CHECK(OptionOf(fd, IPPROTO_TCP, TCP_USER_TIMEOUT) == 30'000);
      // A wait for what does not come ends soon.
      CHECK(::recv(fd, text.data(), text.size(), 0) == -1);
    }
  }
}

TEST_CASE("FastPathSetup: one that does not come is named, and all do without") {
  OpeningNodes nodes(3);
  const Clock::time_point began = Clock::now();
  nodes.Begin(0, began);
  nodes.Begin(1, began);
  for (int turn = 0; turn < 20; ++turn) {
    nodes.Advance(began);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK(nodes.Setup(0).Advance(began + FastPathSetup::kPatience / 2) == State::kPending);
  CHECK(nodes.Setup(0).Advance(nodes.Setup(0).Deadline()) == State::kFailed);
  CHECK(FailureOf(nodes, 0) == "no connection came from node-2 within 1000 ms");
  // The other one sees that it was closed, before its own time is over.
  CHECK(Within([&] { return nodes.Setup(1).Advance(began) == State::kFailed; }));
  CHECK_THAT(FailureOf(nodes, 1), Contains("node-0: it closed the connection"));
}

TEST_CASE("FastPathSetup: a root that never answers, and one that is not there") {
  OpeningNodes nodes(2);
  const Clock::time_point began = Clock::now();
  SECTION("it listens, but does not take part") {
    nodes.Begin(1, began);
    nodes.Advance(began);
    CHECK(nodes.Setup(1).Advance(began + FastPathSetup::kPatience) == State::kPending);
    CHECK(nodes.Setup(1).Advance(began + kLongAfter) == State::kFailed);
    CHECK_THAT(FailureOf(nodes, 1), Contains("node-0") && Contains("within 1500 ms"));
  }
  SECTION("nobody listens") {
    FastPathPlan plan = nodes.PlanOf(1);
    plan.addresses[0] = OpenListener()->address();  // closed at once
    nodes.Begin(plan, began);
    CHECK(Within([&] { return nodes.Setup(1).Advance(began) == State::kFailed; }));
    CHECK_THAT(FailureOf(nodes, 1), Contains("node-0") && Contains("Connection refused"));
  }
  SECTION("the address makes no sense") {
    FastPathPlan plan = nodes.PlanOf(1);
    plan.addresses[0] = "node-0";
    nodes.Begin(plan, began);
    CHECK(nodes.Setup(1).Advance(began) == State::kFailed);
  }
}

TEST_CASE(
    "FastPathSetup: with the k-nomial tree each node is connected to its neighbours there, too") {
  constexpr std::uint32_t kCount = 8;
  OpeningNodes nodes(kCount, /*knomial=*/true);
  // Node 4's children are faster than it is, and it can't be done without.
  for (const std::uint32_t node : {5, 7, 0, 1, 2, 3, 6}) nodes.Begin(node);
  for (int turn = 0; turn < 20; ++turn) {
    nodes.Advance();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK(nodes.Setup(0).Advance(Clock::now()) == State::kPending);
  CHECK(nodes.Setup(7).Advance(Clock::now()) == State::kPending);
  nodes.Begin(4);
  REQUIRE(nodes.All(State::kOpen));

  std::vector<std::vector<UniqueFd>> connections;
  for (std::uint32_t node = 0; node < kCount; ++node) {
    connections.push_back(nodes.Setup(node).TakeConnections());
  }
  for (std::uint32_t node = 0; node < kCount; ++node) {
    const FastPathNodeSet neighbours = NeighboursOf(node, kCount, true);
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

TEST_CASE("FastPathSetup: of the k-nomial tree, too, one that does not come is named") {
  OpeningNodes nodes(8, /*knomial=*/true);
  const Clock::time_point began = Clock::now();
  for (const std::uint32_t node : {0, 1, 2, 3, 4, 5, 7}) nodes.Begin(node, began);
  for (int turn = 0; turn < 20; ++turn) {
    nodes.Advance(began);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  SECTION("by the root, with the one that waits for it") {
    CHECK(nodes.Setup(0).Advance(nodes.Setup(0).Deadline()) == State::kFailed);
    CHECK(FailureOf(nodes, 0) == "no connection came from node-4, node-6 within 1000 ms");
    // The others hear of it before their time is over.
    for (const std::uint32_t node : {1, 2, 3, 4, 5, 7}) {
      CHECK(Within([&] {
        nodes.Advance(began);
        return nodes.Setup(node).Advance(began) == State::kFailed;
      }));
    }
  }
  SECTION("by its parent, if the root says nothing") {
    CHECK(nodes.Setup(4).Advance(began + kLongAfter) == State::kFailed);
    CHECK(FailureOf(nodes, 4) == "no connection came from node-6 within 1500 ms");
  }
}

TEST_CASE("FastPathSetup: of the k-nomial tree, a parent that hangs up, or is not there") {
  OpeningNodes nodes(8, /*knomial=*/true);
  const Clock::time_point began = Clock::now();
  SECTION("hangs up") {
    for (const std::uint32_t node : {4, 5}) nodes.Begin(node, began);
    for (int turn = 0; turn < 20; ++turn) {
      nodes.Advance(began);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    CHECK(nodes.Setup(5).Advance(began) == State::kPending);
    CHECK(nodes.Setup(4).Advance(began + kLongAfter) == State::kFailed);
    CHECK(Within([&] { return nodes.Setup(5).Advance(began) == State::kFailed; }));
    CHECK(FailureOf(nodes, 5) == "node-4: it closed the connection");
  }
  SECTION("nobody listens") {
    FastPathPlan plan = nodes.PlanOf(5);
    plan.addresses[4] = OpenListener()->address();
    nodes.Begin(plan, began);
    CHECK(Within([&] { return nodes.Setup(5).Advance(began) == State::kFailed; }));
    CHECK_THAT(FailureOf(nodes, 5), Contains("node-4") && Contains("Connection refused"));
  }
}

TEST_CASE("FastPathSetup: a node takes only its children's connections") {
  OpeningNodes nodes(8, /*knomial=*/true);
  nodes.Begin(4);
  Stranger stranger(nodes.Listener(4));
  stranger.Say(BytesOf(HelloOf(GENERATE(3U, 4U, 8U))));
  CHECK(Within([&] {
    nodes.Advance();
    return stranger.HungUpOn();
  }));
}

TEST_CASE("FastPathSetup: strangers are hung up on, and the job's own nodes come all the same") {
  OpeningNodes nodes(2);
  nodes.Begin(0);
  FastPathHello hello = HelloOf(1);
  SECTION("a wrong token") { hello.token[15] ^= std::byte{1}; }
  SECTION("the root's own number") { hello.node_index = 0; }
  SECTION("a number past the last") { hello.node_index = 2; }
  Stranger stranger(nodes.Listener(0));
  stranger.Say(BytesOf(hello));
  CHECK(Within([&] {
    nodes.Advance();
    return stranger.HungUpOn();
  }));
  nodes.Begin(1);
  CHECK(nodes.All(State::kOpen));
}

TEST_CASE("FastPathSetup: the first who comes as a node keeps its place") {
  OpeningNodes nodes(3);
  nodes.Begin(0);
  Stranger first(nodes.Listener(0));
  first.Say(BytesOf(HelloOf(1)));
  nodes.Advance();
  Stranger second(nodes.Listener(0));
  second.Say(BytesOf(HelloOf(1)));
  CHECK(Within([&] {
    nodes.Advance();
    return second.HungUpOn() || first.HungUpOn();
  }));
  CHECK(second.HungUpOn() != first.HungUpOn());
  nodes.Begin(2);
  CHECK(nodes.All(State::kOpen));
  CHECK((first.Heard() || second.Heard()));
}

TEST_CASE("FastPathSetup: a node that goes or speaks too soon ends it for all, at once") {
  OpeningNodes nodes(3);
  const Clock::time_point began = Clock::now();
  nodes.Begin(0, began);
  Stranger first(nodes.Listener(0));
  first.Say(BytesOf(HelloOf(1)));
  for (int turn = 0; turn < 20; ++turn) {
    nodes.Advance(began);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK(nodes.Setup(0).Advance(began) == State::kPending);
  std::string what;
  SECTION("goes") {
    first.HangUp();
    what = "node-1: it closed the connection";
  }
  SECTION("speaks") {
    first.Say(BytesOf(HelloOf(1)));
    what = "node-1: it said something that nobody waits for";
  }
  CHECK(Within([&] { return nodes.Setup(0).Advance(began) == State::kFailed; }));
  CHECK(FailureOf(nodes, 0) == what);
}

TEST_CASE("FastPathSetup: an answer that makes no sense is none") {
  OpeningNodes nodes(2);
  const Clock::time_point began = Clock::now();
  nodes.Begin(1, began);
  std::vector<FastPathListener::Arrival> arrivals;
  CHECK(Within([&] {
    nodes.Advance(began);
    arrivals = nodes.Listener(0).TakeArrivals(kWireId);
    return !arrivals.empty();
  }));
  REQUIRE(arrivals.size() == 1);
  CHECK(arrivals[0].hello.node_index == 1);
  const FastPathOpen nonsense{kFastPathMessageMagic, kFastPathWireVersion + 1};
  REQUIRE(SendWhole(arrivals[0].connection.get(), BytesOf(nonsense)).ok());
  CHECK(Within([&] { return nodes.Setup(1).Advance(began) == State::kFailed; }));
  CHECK_THAT(FailureOf(nodes, 1), Contains("makes no sense"));
}

}  // namespace
}  // namespace ringd
