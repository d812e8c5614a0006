// Two nodes of two ranks each: the test plays the ranks, with what ringd has handed to them.
#include "daemon/lanes/rank_exchange/rank_exchange_watch.h"

#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <memory>
#include <utility>
#include <vector>

#include "tests/daemon/lanes/rank_exchange/attached_rank.h"
#include "tests/proto/base/tcp_pair.h"

namespace ringd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::uint32_t kNodeCount = 2;
constexpr std::uint32_t kMembers = 2;
constexpr std::uint32_t kLimit = 4096;
constexpr RankExchangeKey kKey{4711, 0};
constexpr std::uint32_t kRegistration = 5;

struct Nodes {
  Nodes() {
    auto ends = testing::TcpPair();
    for (std::uint32_t n = 0; n < kNodeCount; ++n) {
      std::vector<UniqueFd> connections(kNodeCount);
      connections[1 - n] = std::move(ends[n]);
      std::vector<std::shared_ptr<Session>> sessions;
      for (const AttachedRank& rank : ranks[n]) sessions.push_back(rank.session);
      auto made = RankExchangeWatch::Create({kMembers, kNodeCount, n, kLimit, kLimit},
                                            std::move(connections), sessions);
      REQUIRE(made.ok());
      watches[n] = *std::move(made);
      for (std::uint32_t m = 0; m < kMembers; ++m) {
        CHECK(ranks[n][m].Attach(kNodeCount, watches[n]->connection_count()) == m);
      }
    }
  }

  RankExchangeOutcome Contribute(std::uint32_t node, std::uint32_t member, std::uint32_t& cell) {
    return ranks[node][member].Contribute(kKey, kRegistration, cell);
  }
  // Both ringds look, and time goes on; the ranks do nothing.
  void Look() {
    now += RankExchangeWatch::kLookInterval;
    for (const auto& watch : watches) watch->Look(now);
  }
  void LookFor(milliseconds time) {
    for (const Clock::time_point until = now + time; now < until;) Look();
  }
  void Hold(std::uint32_t node, std::uint32_t member) {
    REQUIRE(ranks[node][member].exchange->BecomeDriver());
  }
  void CloseOf(std::uint32_t node) {
    for (AttachedRank& rank : ranks[node]) rank.exchange.reset();
    watches[node].reset();
  }

  AttachedRank ranks[kNodeCount][kMembers];
  std::unique_ptr<RankExchangeWatch> watches[kNodeCount];
  Clock::time_point now = Clock::now();
};

TEST_CASE(
    "RankExchangeWatch: hands segment and connections to the members, who then need no ringd") {
  Nodes nodes;
  CHECK(nodes.watches[0]->connection_count() == kNodeCount);
  CHECK(nodes.watches[1]->connection_count() == 2);
  CHECK(nodes.watches[0]->limit_bytes() == kLimit);
  CHECK(nodes.ranks[1][0].view.limit_bytes() == kLimit);
  std::uint32_t cells[kNodeCount][kMembers];
  for (std::uint32_t n = 0; n < kNodeCount; ++n) {
    for (std::uint32_t m = 0; m < kMembers; ++m) {
      REQUIRE(nodes.Contribute(n, m, cells[n][m]) != RankExchangeOutcome::kGivenUp);
    }
  }
  CHECK(nodes.watches[0]->Waiting(Clock::time_point::max(), Clock::now()).size() == kMembers);
  for (std::uint32_t n = 0; n < kNodeCount; ++n) {
    AttachedRank& driver = nodes.ranks[n][0];
    REQUIRE(driver.exchange->BecomeDriver());
    const Clock::time_point deadline = Clock::now() + seconds(20);
    while (driver.exchange->Look(cells[n][0]) == RankExchangeOutcome::kPending &&
           Clock::now() < deadline) {
      driver.exchange->Drive(milliseconds(1));
    }
    driver.exchange->StopDriving();
    for (std::uint32_t m = 0; m < kMembers; ++m) {
      REQUIRE(nodes.ranks[n][m].exchange->Look(cells[n][m]) == RankExchangeOutcome::kCompleted);
      float sum = 0;
      nodes.ranks[n][m].exchange->Take(cells[n][m], DataType::kFloat32, &sum, 1, Scaling{});
      CHECK(sum == kNodeCount * kMembers);
    }
    CHECK(nodes.watches[n]->completed() == 1);
    CHECK(nodes.watches[n]->given_up() == 0);
    CHECK(nodes.watches[n]->Waiting(Clock::time_point::max(), Clock::now()).empty());
  }
}

TEST_CASE(
    "RankExchangeWatch: takes the driver's turn, so that what one node brings alone is given up") {
  Nodes nodes;
  std::uint32_t cell = 0;
  for (std::uint32_t m = 0; m < kMembers; ++m) {
    REQUIRE(nodes.Contribute(1, m, cell) == RankExchangeOutcome::kPending);
  }
  // Only the other's decision counts, and none of its ranks has come; it can still come.
  CHECK_FALSE(nodes.watches[1]->LacksDecision());
  RankExchange& rank = *nodes.ranks[1][0].exchange;
  const Clock::time_point deadline = Clock::now() + seconds(20);
  while (rank.Look(cell) == RankExchangeOutcome::kPending && Clock::now() < deadline) {
    nodes.Look();
    ::usleep(10'000);
  }
  CHECK(rank.Look(cell) == RankExchangeOutcome::kGivenUp);
  CHECK(nodes.watches[1]->given_up() == 1);
  // Members that have not departed wait for nobody.
  nodes.Look();
  CHECK_FALSE(nodes.watches[1]->late());
  CHECK(nodes.watches[1]->Holders().empty());
}

TEST_CASE(
    "RankExchangeWatch: a member that keeps the driver's role and does not move is told apart") {
  Nodes nodes;
  std::uint32_t cell = 0;
  REQUIRE(nodes.Contribute(1, 0, cell) == RankExchangeOutcome::kPending);
  nodes.Hold(1, 1);
  const RankExchangeWatch& watch = *nodes.watches[1];
  nodes.LookFor(milliseconds(500));
  CHECK(watch.Holders().empty());
  CHECK(watch.late());
  nodes.LookFor(milliseconds(1000));
  CHECK(watch.Holders() == std::vector<int>{1});
  const std::vector<RankExchangeWait> waiting = watch.Waiting(nodes.now - seconds(1), nodes.now);
  REQUIRE(waiting.size() == 1);
  CHECK(waiting[0].member == 0);
  CHECK(waiting[0].registration == kRegistration);
  CHECK(watch.Waiting(nodes.now - seconds(10), nodes.now).empty());
  CHECK(nodes.watches[0]->Holders().empty());
  // It moves.
  nodes.ranks[1][1].exchange->Drive(milliseconds(0));
  nodes.Look();
  CHECK(watch.Holders().empty());
}

TEST_CASE("RankExchangeWatch: a lock that is held for long, and nonsense in its place") {
  Nodes nodes;
  RankExchangeControl& control = nodes.ranks[0][0].view.control();
  std::vector<int> holders;
  SECTION("by a member") {
    control.lock = 2;
    holders = {1};
  }
  SECTION("nonsense") { control.lock = 4711; }
  nodes.LookFor(seconds(2));
  CHECK(nodes.watches[0]->Holders() == holders);
}

TEST_CASE("RankExchangeWatch: tells of a broken connection after a second, and whether it hurts") {
  Nodes nodes;
  std::uint32_t cell = 0;
  bool awaits = false;
  SECTION("a node waits for the hub's decision") {
    for (std::uint32_t m = 0; m < kMembers; ++m) nodes.Contribute(1, m, cell);
    awaits = true;
  }
  SECTION("nobody waits") {}
  const RankExchangeWatch& watch = *nodes.watches[1];
  nodes.CloseOf(0);
  const auto look = [&] {
    nodes.now += RankExchangeWatch::kLookInterval;
    nodes.watches[1]->Look(nodes.now);
  };
  look();
  CHECK_FALSE(watch.Broken(nodes.now).has_value());
  for (int i = 0; i < 11; ++i) look();
  const std::optional<RankExchangeBreak> broken = watch.Broken(nodes.now);
  REQUIRE(broken.has_value());
  CHECK(broken->reason == RankExchangeBreak::Reason::kConnection);
  CHECK(broken->node == 0);
  CHECK(watch.LacksDecision() == awaits);
}

}  // namespace
}  // namespace ringd
