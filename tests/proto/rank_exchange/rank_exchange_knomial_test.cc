// Operations that take the k-nomial tree. Of eight nodes: 0 has the children 1, 2, 3 and 4, and 4
// has 5, 6 and 7.
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <future>
#include <numeric>
#include <thread>
#include <vector>

#include "tests/proto/rank_exchange/rank_exchange_nodes.h"

namespace ringd {
namespace {

using testing::AddPatiently;
using testing::CellsInUse;
using testing::DriveOnce;
using testing::Finish;
using testing::Floats;
using testing::kKey;
using testing::RankExchangeNodes;
using testing::ResultOf;

constexpr std::uint32_t kNodes = 8;
constexpr std::uint32_t kInner = 4;
// Of a tensor: more takes the k-nomial tree.
constexpr std::uint32_t kFlatBytes = 4;
const std::vector<float> kOnes{1, 1};

// One rank on each of eight nodes; the nodes are driven by hand, from the hub down.
class Tree {
 public:
  Tree() : cells(kNodes), nodes(kNodes, 1, kRankExchangeMostBytesOfMany, kFlatBytes) {}

  RankExchangeOutcome Bring(std::uint32_t node) {
    return nodes.Member(node).Contribute(Floats(kKey, kOnes), cells[node]);
  }
  void BringAllBut(std::uint32_t missing) {
    for (std::uint32_t node = 0; node < kNodes; ++node) {
      if (node != missing) REQUIRE(Bring(node) == RankExchangeOutcome::kPending);
    }
  }
  RankExchangeOutcome Look(std::uint32_t node) { return nodes.Member(node).Look(cells[node]); }
  void Drive(std::uint32_t node) { DriveOnce(nodes.Ringd(node)); }
  // Until nobody hears anything any more.
  void DriveAll() {
    for (int turn = 0; turn < 6; ++turn) {
      for (std::uint32_t node = 0; node < kNodes; ++node) Drive(node);
    }
  }
  // For ten seconds at most.
  template <typename Condition>
  bool DriveUntil(Condition condition) {
    const auto end = Clock::now() + std::chrono::seconds(10);
    while (!condition()) {
      if (Clock::now() >= end) return false;
      DriveAll();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return true;
  }
  void Cut(std::uint32_t node, std::uint32_t other) {
    REQUIRE(::shutdown(nodes.Connection(node, other), SHUT_RDWR) == 0);
  }
  RankExchangeBreak::Reason WhyBroken(std::uint32_t node) {
    return nodes.Member(node).WhyBroken().reason;
  }

  std::vector<std::uint32_t> cells;
  RankExchangeNodes nodes;
};

TEST_CASE("k-nomial: nodes of any number add, with sizes of both trees in turns") {
  const std::uint32_t node_count = GENERATE(6U, 7U, 8U, 11U, 16U);
  constexpr std::uint64_t kSteps = 60;
  RankExchangeNodes nodes(node_count, 1, kRankExchangeMostBytesOfMany, 1024);
  std::vector<std::future<std::uint64_t>> wrong;
  for (std::uint32_t node = 0; node < node_count; ++node) {
    wrong.push_back(std::async(std::launch::async, [&nodes, node, node_count] {
      RankExchange& member = nodes.Member(node);
      std::uint64_t failures = 0;
      for (std::uint64_t step = 0; step < kSteps; ++step) {
        const std::vector<float> values(1 + step * 67 % 2048, static_cast<float>(node + step));
        std::uint32_t cell = 0;
        if (!AddPatiently(member, step, values, cell)) return kSteps;
        const auto sum = static_cast<float>(node_count * (node_count - 1) / 2 + node_count * step);
        failures += ResultOf(member, cell, values.size()) == std::vector<float>(values.size(), sum)
                        ? 0U
                        : 1U;
      }
      return failures;
    }));
  }
  for (auto& failures : wrong) CHECK(failures.get() == 0);
  for (std::uint32_t node = 0; node < node_count; ++node) {
    CHECK(CellsInUse(nodes.View(node)) == 0);
    CHECK(nodes.View(node).control().awaited.load() == 0);
  }
}

TEST_CASE("k-nomial: a node combines its own input with its children's, in their order") {
  // 1 + 2^-24 is 1 in float32, and the sum of four of those is not lost: the order shows in the
  // bits.
  constexpr float kTiny = 0x1p-24F;
  Tree tree;
  for (std::uint32_t node = kNodes; node-- > 0;) {
    const float value = node == 0 ? 1 : node < kInner ? 0 : kTiny;
    static_cast<void>(
        tree.nodes.Member(node).Contribute(Floats(kKey, {value, value}), tree.cells[node]));
  }
  tree.DriveAll();
  const float expected = 1 + 4 * kTiny;
  REQUIRE(expected > 1);
  for (std::uint32_t node = 0; node < kNodes; ++node) {
    REQUIRE(tree.Look(node) == RankExchangeOutcome::kCompleted);
    CHECK(ResultOf(tree.nodes.Member(node), tree.cells[node], 2) ==
          std::vector<float>{expected, expected});
  }
}

TEST_CASE("k-nomial: ranks of a node that is no leaf are combined with its children") {
  RankExchangeNodes nodes(6, 2, kRankExchangeMostBytesOfMany, kFlatBytes);
  std::vector<std::vector<std::uint32_t>> cells(6, std::vector<std::uint32_t>(2));
  for (std::uint32_t node = 0; node < 6; ++node) {
    for (std::uint32_t member = 0; member < 2; ++member) {
      static_cast<void>(
          nodes.Member(node, member).Contribute(Floats(kKey, {1, 2}), cells[node][member]));
    }
  }
  for (int turn = 0; turn < 4; ++turn) {
    for (std::uint32_t node = 0; node < 6; ++node) DriveOnce(nodes.Member(node, turn % 2));
  }
  for (std::uint32_t node = 0; node < 6; ++node) {
    for (std::uint32_t member = 0; member < 2; ++member) {
      REQUIRE(nodes.Member(node, member).Look(cells[node][member]) ==
              RankExchangeOutcome::kCompleted);
      CHECK(ResultOf(nodes.Member(node, member), cells[node][member], 2) ==
            std::vector<float>{12, 24});
    }
  }
}

TEST_CASE("k-nomial: what any one node does not bring is given up by all") {
  const std::uint32_t missing = GENERATE(0U, 2U, kInner, 6U);
  Tree tree;
  tree.BringAllBut(missing);
  CHECK(tree.DriveUntil([&] {
    for (std::uint32_t node = 0; node < kNodes; ++node) {
      if (node != missing && tree.Look(node) == RankExchangeOutcome::kPending) return false;
    }
    return true;
  }));
  for (std::uint32_t node = 0; node < kNodes; ++node) {
    if (node == missing) continue;
    CHECK(tree.Look(node) == RankExchangeOutcome::kGivenUp);
    tree.nodes.Member(node).Depart(tree.cells[node]);
  }
  // And by that one, when it comes; it may have forgotten it, or never have been asked.
  if (tree.Bring(missing) == RankExchangeOutcome::kPending) {
    CHECK(tree.DriveUntil([&] { return tree.Look(missing) != RankExchangeOutcome::kPending; }));
    CHECK(tree.Look(missing) == RankExchangeOutcome::kGivenUp);
  }
  for (std::uint32_t node = 0; node < kNodes; ++node) CHECK(tree.nodes.Member(node).Usable());
}

TEST_CASE("k-nomial: an input for which there is no room is answered, and nobody waits for it") {
  Tree tree;
  std::uint32_t cell = 0;
  for (std::uint64_t i = 0; i < kRankExchangeCells; ++i) {
    REQUIRE(tree.nodes.Member(kInner).Contribute(Floats({100, i}, kOnes), cell) ==
            RankExchangeOutcome::kPending);
  }
  REQUIRE(tree.Bring(5) == RankExchangeOutcome::kPending);
  tree.Drive(kInner);
  tree.Drive(5);
  CHECK(tree.Look(5) == RankExchangeOutcome::kGivenUp);
}

TEST_CASE("k-nomial: other lengths under one key are given up, whichever tree they take") {
  Tree tree;
  REQUIRE(tree.Bring(kInner) == RankExchangeOutcome::kPending);
  SECTION("a child's is of the same tree") {
    const std::vector<float> longer{1, 1, 1};
    REQUIRE(tree.nodes.Member(5).Contribute(Floats(kKey, longer), tree.cells[5]) ==
            RankExchangeOutcome::kPending);
    tree.Drive(kInner);
    tree.Drive(5);
    CHECK(tree.Look(5) == RankExchangeOutcome::kGivenUp);
    CHECK(tree.Look(kInner) == RankExchangeOutcome::kGivenUp);
  }
  SECTION("one takes the flat tree, and its parent is another") {
    REQUIRE(tree.Bring(0) == RankExchangeOutcome::kPending);
    REQUIRE(tree.nodes.Member(5).Contribute(Floats(kKey, {1}), tree.cells[5]) ==
            RankExchangeOutcome::kPending);
    tree.DriveAll();
    CHECK(tree.Look(0) == RankExchangeOutcome::kGivenUp);
    CHECK(tree.Look(5) == RankExchangeOutcome::kGivenUp);
    CHECK(tree.Look(kInner) == RankExchangeOutcome::kGivenUp);
  }
  for (std::uint32_t node = 0; node < kNodes; ++node) CHECK(tree.nodes.Member(node).Usable());
}

TEST_CASE("k-nomial: an input from a node that is no child is nonsense") {
  Tree tree;
  RankExchangeMessage message{};
  message.magic = kRankExchangeMessageMagic;
  message.kind = RankExchangeMessageKind::kInput;
  message.signature = kKey.signature;
  SECTION("of the flat tree, at a node that is not the hub") {
    REQUIRE(::send(tree.nodes.Connection(5, kInner), &message, sizeof(message), 0) > 0);
    tree.Drive(kInner);
    CHECK(tree.WhyBroken(kInner) == RankExchangeBreak::Reason::kProtocol);
  }
  SECTION("of the k-nomial tree, at the hub") {
    message.payload_bytes = 8;
    const std::vector<std::byte> payload(8);
    REQUIRE(::send(tree.nodes.Connection(5, 0), &message, sizeof(message), 0) > 0);
    REQUIRE(::send(tree.nodes.Connection(5, 0), payload.data(), payload.size(), 0) > 0);
    tree.Drive(0);
    CHECK(tree.WhyBroken(0) == RankExchangeBreak::Reason::kProtocol);
  }
}

// ---- what becomes of operations when a connection breaks
// ------------------------------------------------------

TEST_CASE("k-nomial: who has lost a child still hears the hub's result, and passes it on") {
  Tree tree;
  tree.BringAllBut(0);
  tree.DriveAll();
  tree.Cut(7, kInner);
  tree.Drive(kInner);
  CHECK_FALSE(tree.nodes.Member(kInner).Usable());
  CHECK(tree.Look(kInner) == RankExchangeOutcome::kPending);
  // The hub completes it before it hears of that.
  tree.nodes.Member(0).Contribute(Floats(kKey, kOnes), tree.cells[0]);
  tree.DriveAll();
  for (const std::uint32_t node : {0U, 1U, 2U, 3U, kInner, 5U, 6U}) {
    INFO("node " << node);
    CHECK(tree.Look(node) == RankExchangeOutcome::kCompleted);
    CHECK_FALSE(tree.nodes.Member(node).Usable());
  }
  // Only the one behind the broken connection can't know.
  CHECK(tree.Look(7) == RankExchangeOutcome::kPending);
  CHECK_FALSE(tree.nodes.Member(7).Usable());
}

TEST_CASE("k-nomial: who has lost a child tells the hub, and all give up what was not complete") {
  Tree tree;
  tree.BringAllBut(0);
  tree.DriveAll();
  tree.Cut(7, kInner);
  tree.DriveAll();
  for (const std::uint32_t node : {1U, 2U, 3U, kInner, 5U, 6U}) {
    INFO("node " << node);
    CHECK(tree.Look(node) == RankExchangeOutcome::kGivenUp);
    CHECK_FALSE(tree.nodes.Member(node).Usable());
  }
  CHECK(tree.Look(7) == RankExchangeOutcome::kPending);
  CHECK(tree.WhyBroken(0) == RankExchangeBreak::Reason::kStopped);
  // The cause's first witnesses: the one that lost its child, or the child.
  CHECK((tree.nodes.Member(0).WhyBroken().node == kInner ||
         tree.nodes.Member(0).WhyBroken().node == 7));
  CHECK(tree.Bring(0) == RankExchangeOutcome::kGivenUp);
}

TEST_CASE("k-nomial: who has lost its parent hangs up on its children, and none of them can know") {
  Tree tree;
  tree.BringAllBut(0);
  tree.DriveAll();
  tree.Cut(0, kInner);
  tree.DriveAll();
  for (const std::uint32_t node : {1U, 2U, 3U}) {
    CHECK(tree.Look(node) == RankExchangeOutcome::kGivenUp);
  }
  for (const std::uint32_t node : {kInner, 5U, 6U, 7U}) {
    INFO("node " << node);
    CHECK(tree.Look(node) == RankExchangeOutcome::kPending);
    CHECK_FALSE(tree.nodes.Member(node).Usable());
  }
}

TEST_CASE("k-nomial: a node that has heard the end answers children that have not") {
  Tree tree;
  tree.Cut(1, 0);
  tree.Drive(0);
  tree.Drive(kInner);
  CHECK(tree.WhyBroken(kInner) == RankExchangeBreak::Reason::kStopped);
  // Node 5 has heard nothing.
  REQUIRE(tree.Bring(5) == RankExchangeOutcome::kPending);
  tree.Drive(kInner);
  tree.Drive(5);
  CHECK(tree.Look(5) == RankExchangeOutcome::kGivenUp);
}

TEST_CASE("k-nomial: a driver does not spin on connections that have ended") {
  Tree tree;
  tree.BringAllBut(0);
  tree.DriveAll();
  tree.Cut(7, kInner);
  tree.Drive(kInner);
  REQUIRE(tree.nodes.Member(kInner).BecomeDriver());
  const auto began = Clock::now();
  // The closed one is left out of the first wait that it ends.
  for (int turn = 0; turn < 3; ++turn) {
    tree.nodes.Member(kInner).Drive(std::chrono::milliseconds(40));
  }
  CHECK(Clock::now() - began >= std::chrono::milliseconds(80));
}

}  // namespace
}  // namespace ringd
