// What goes the other way: operations that somebody does not bring, or that do not fit.
#include <catch2/catch.hpp>
#include <span>
#include <thread>
#include <vector>

#include "proto/rank_exchange/rank_exchange.h"
#include "tests/proto/rank_exchange/rank_exchange_nodes.h"

namespace ringd {
namespace {

using testing::CellsInUse;
using testing::DriveOnce;
using testing::Finish;
using testing::Floats;
using testing::kKey;
using testing::RankExchangeNodes;

// All cells of node 1 are in operations to which nobody else comes.
void TakeAllCells(RankExchangeNodes& nodes) {
  std::uint32_t cell = 0;
  for (std::uint64_t i = 0; i < kRankExchangeCells; ++i) {
    REQUIRE(nodes.Member(1).Contribute(Floats({100, i}, {1}), cell) ==
            RankExchangeOutcome::kPending);
  }
}

// These have been given up, and left.
void FreeAllCells(RankExchangeNodes& nodes) {
  DriveOnce(nodes.Ringd(0));
  std::this_thread::sleep_for(RankExchange::kPatience + std::chrono::milliseconds(10));
  DriveOnce(nodes.Ringd(0));
  for (std::uint32_t i = 0; i < kRankExchangeCells; ++i) {
    CHECK(Finish(nodes.Member(1), i) == RankExchangeOutcome::kGivenUp);
    nodes.Member(1).Depart(i);
  }
}

TEST_CASE("The hub gives up what a node does not bring, and the node hears of it") {
  RankExchangeNodes nodes(3);
  std::uint32_t hub = 0;
  std::uint32_t first = 0;
  REQUIRE(nodes.Member(0).Contribute(Floats(kKey, {1}), hub) == RankExchangeOutcome::kPending);
  REQUIRE(nodes.Member(1).Contribute(Floats(kKey, {1}), first) == RankExchangeOutcome::kPending);
  CHECK(Finish(nodes.Member(0), hub) == RankExchangeOutcome::kGivenUp);
  CHECK(Finish(nodes.Member(1), first) == RankExchangeOutcome::kGivenUp);
  nodes.Member(0).Depart(hub);
  nodes.Member(1).Depart(first);

  // The late one has the decision waiting, and must not bring its part.
  std::uint32_t late = 0;
  DriveOnce(nodes.Member(2));
  CHECK(nodes.Member(2).Contribute(Floats(kKey, {1}), late) == RankExchangeOutcome::kGivenUp);
  for (std::uint32_t n = 0; n < 3; ++n) CHECK(CellsInUse(nodes.View(n)) == 0);
}

TEST_CASE("A part that crosses the hub's decision is not added to anything") {
  RankExchangeNodes nodes(3);
  std::uint32_t hub = 0;
  REQUIRE(nodes.Member(0).Contribute(Floats(kKey, {1}), hub) == RankExchangeOutcome::kPending);
  CHECK(Finish(nodes.Member(0), hub) == RankExchangeOutcome::kGivenUp);
  std::uint32_t other = 0;
  REQUIRE(nodes.Member(1).Contribute(Floats(kKey, {1}), other) == RankExchangeOutcome::kPending);
  DriveOnce(nodes.Member(0));
  CHECK(nodes.Member(0).Look(hub) == RankExchangeOutcome::kGivenUp);
  CHECK(Finish(nodes.Member(1), other) == RankExchangeOutcome::kGivenUp);
}

TEST_CASE("Who had no room for the hub's decision hears it again when it asks") {
  RankExchangeNodes nodes(3);
  std::uint32_t hub = 0;
  REQUIRE(nodes.Member(0).Contribute(Floats(kKey, {1}), hub) == RankExchangeOutcome::kPending);
  TakeAllCells(nodes);
  CHECK(Finish(nodes.Member(0), hub) == RankExchangeOutcome::kGivenUp);
  DriveOnce(nodes.Member(1), RankExchange::kTurn);  // the decision: all cells are taken
  // Then there is room again.
  FreeAllCells(nodes);
  std::uint32_t late = 0;
  REQUIRE(nodes.Member(1).Contribute(Floats(kKey, {1}), late) == RankExchangeOutcome::kPending);
  DriveOnce(nodes.Ringd(0));
  CHECK(Finish(nodes.Member(1), late) == RankExchangeOutcome::kGivenUp);
}

TEST_CASE("Of a pair each gives up what it has not sent, and answers the other's input with that") {
  RankExchangeNodes nodes(2, 2);
  const std::uint32_t node = GENERATE(0U, 1U);
  const std::uint32_t other = 1 - node;
  std::uint32_t alone = 0;
  std::uint32_t cells[2] = {};
  REQUIRE(nodes.Member(node, 0).Contribute(Floats(kKey, {1}), alone) ==
          RankExchangeOutcome::kPending);
  const auto other_sends = [&] {
    for (std::uint32_t m = 0; m < 2; ++m) {
      REQUIRE(nodes.Member(other, m).Contribute(Floats(kKey, {1}), cells[m]) ==
              RankExchangeOutcome::kPending);
    }
  };
  SECTION("which comes before") {
    other_sends();
    DriveOnce(nodes.Member(node));
    CHECK(nodes.Member(node).Look(alone) == RankExchangeOutcome::kPending);
    CHECK(Finish(nodes.Member(node), alone) == RankExchangeOutcome::kGivenUp);
    nodes.Member(node).Depart(alone);
  }
  SECTION("which comes after") {
    CHECK(Finish(nodes.Member(node), alone) == RankExchangeOutcome::kGivenUp);
    other_sends();
    nodes.Member(node).Depart(alone);
    DriveOnce(nodes.Member(node));
  }
  for (std::uint32_t m = 0; m < 2; ++m) {
    CHECK(Finish(nodes.Member(other, m), cells[m]) == RankExchangeOutcome::kGivenUp);
    nodes.Member(other, m).Depart(cells[m]);
  }
  std::uint32_t late = 0;
  CHECK(nodes.Member(node, 1).Contribute(Floats(kKey, {1}), late) == RankExchangeOutcome::kGivenUp);
}

TEST_CASE("Of a pair an input that finds no room is answered, and its key given up for good") {
  RankExchangeNodes nodes(2);
  // All cells of node 1 are in operations to which node 0 does not come.
  TakeAllCells(nodes);
  std::uint32_t own = 0;
  REQUIRE(nodes.Member(0).Contribute(Floats(kKey, {1}), own) == RankExchangeOutcome::kPending);
  DriveOnce(nodes.Member(1));
  CHECK(Finish(nodes.Member(0), own) == RankExchangeOutcome::kGivenUp);
  // Room again: the other's rank comes late, and must not wait for ever.
  FreeAllCells(nodes);
  std::uint32_t late = 0;
  if (nodes.Member(1).Contribute(Floats(kKey, {1}), late) == RankExchangeOutcome::kPending) {
    DriveOnce(nodes.Ringd(0));
    CHECK(Finish(nodes.Member(1), late) == RankExchangeOutcome::kGivenUp);
  }
}

TEST_CASE("A node gives up by itself what a local rank does not bring") {
  RankExchangeNodes nodes(3, 2);
  std::uint32_t first = 0;
  REQUIRE(nodes.Member(1, 0).Contribute(Floats(kKey, {1}), first) == RankExchangeOutcome::kPending);
  CHECK(Finish(nodes.Member(1, 0), first) == RankExchangeOutcome::kGivenUp);
  nodes.Member(1, 0).Depart(first);
  std::uint32_t late = 0;
  CHECK(nodes.Member(1, 1).Contribute(Floats(kKey, {1}), late) == RankExchangeOutcome::kGivenUp);
  CHECK(CellsInUse(nodes.View(1)) == 0);
  // Nothing has been sent.
  DriveOnce(nodes.Member(0, 0));
  CHECK(CellsInUse(nodes.View(0)) == 0);
}

TEST_CASE("ringd gives up what none of the hub's ranks comes to") {
  RankExchangeNodes nodes(2);
  std::uint32_t other = 0;
  REQUIRE(nodes.Member(1).Contribute(Floats(kKey, {1}), other) == RankExchangeOutcome::kPending);
  DriveOnce(nodes.Ringd(0));
  CHECK(CellsInUse(nodes.View(0)) == 1);
  std::this_thread::sleep_for(RankExchange::kPatience + std::chrono::milliseconds(10));
  DriveOnce(nodes.Ringd(0));
  CHECK(Finish(nodes.Member(1), other) == RankExchangeOutcome::kGivenUp);
  std::uint32_t hub = 0;
  CHECK(nodes.Member(0).Contribute(Floats(kKey, {1}), hub) == RankExchangeOutcome::kGivenUp);
  CHECK(CellsInUse(nodes.View(0)) == 0);
}

TEST_CASE("Other lengths under one key are given up") {
  RankExchangeNodes nodes(2);
  std::uint32_t hub = 0;
  std::uint32_t other = 0;
  REQUIRE(nodes.Member(1).Contribute(Floats(kKey, {1, 2}), other) == RankExchangeOutcome::kPending);
  SECTION("the hub's rank comes first") {
    REQUIRE(nodes.Member(0).Contribute(Floats(kKey, {1}), hub) == RankExchangeOutcome::kPending);
    CHECK(Finish(nodes.Member(0), hub) == RankExchangeOutcome::kGivenUp);
  }
  SECTION("the hub's rank comes second") {
    DriveOnce(nodes.Member(0));
    CHECK(nodes.Member(0).Contribute(Floats(kKey, {1}), hub) == RankExchangeOutcome::kGivenUp);
  }
  CHECK(Finish(nodes.Member(1), other) == RankExchangeOutcome::kGivenUp);
}

TEST_CASE("What is larger than the limit goes the other way") {
  RankExchangeNodes nodes(2, 1, 4);
  std::uint32_t cell = 0;
  CHECK(nodes.Member(1).Contribute(Floats(kKey, {1, 2}), cell) == RankExchangeOutcome::kGivenUp);
  CHECK(CellsInUse(nodes.View(1)) == 0);
}

TEST_CASE(
    "More operations than there are cells go the other way, at the hub of what it has no room "
    "for") {
  RankExchangeNodes nodes(2, 2);
  std::uint32_t cell = 0;
  for (std::uint64_t i = 0; i < kRankExchangeCells; ++i) {
    REQUIRE(nodes.Member(0, 0).Contribute(Floats({1, i}, {1}), cell) ==
            RankExchangeOutcome::kPending);
  }
  CHECK(nodes.Member(0, 0).Contribute(Floats({2, 0}, {1}), cell) == RankExchangeOutcome::kGivenUp);
  std::uint32_t other = 0;
  static_cast<void>(nodes.Member(1, 0).Contribute(Floats({2, 0}, {1}), other));
  REQUIRE(nodes.Member(1, 1).Contribute(Floats({2, 0}, {1}), other) ==
          RankExchangeOutcome::kPending);
  DriveOnce(nodes.Member(0, 0));
  DriveOnce(nodes.Member(1, 0), RankExchange::kTurn);
  CHECK(nodes.Member(1, 0).Look(other) == RankExchangeOutcome::kGivenUp);
}

}  // namespace
}  // namespace ringd
