// What nodes send that don't agree, or that want to do harm.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "backends/collectives/wire_communicator.h"
#include "tests/backends/backend_world.h"
#include "tests/backends/collectives/fake_network.h"

namespace ringd {
namespace {

TEST_CASE(
    "WireCommunicator: nodes that disagree all hear of it, whose messages come first or last") {
  for (unsigned seed = 0; seed < 200; ++seed) {
    INFO("seed " << seed);
    FakeNetwork network(2, TinyChunks(), seed);
    std::vector<std::int32_t> values(40, 1);
    for (int node = 0; node < 2; ++node) {
      const ReduceOp op = node == 0 ? ReduceOp::kSum : ReduceOp::kMax;
      REQUIRE(network.at(node).TryPost(
          AllReduce({0, 0}, DataType::kInt32, op, values.data(), values.size())));
    }
    std::size_t ended = 0;
    for (int step = 0; step < 1000 && ended < 2; ++step) {
      network.Step();
      for (int node = 0; node < 2; ++node) {
        Completion completion[1];
        if (network.at(node).Poll(completion) == 0) continue;
        ++ended;
        CHECK(completion[0].outcome == CollectiveOutcome::kDisagreement);
        CHECK(completion[0].culprit == NodeIndex(1 - node));
      }
    }
    CHECK(ended == 2);
  }
}

TEST_CASE("WireCommunicator: an operation that ended in disagreement still gives up what waits") {
  FakeNetwork network(2, TinyChunks(), 1);
  std::vector<std::int32_t> values(4000, 1);
  const CollectiveRequest request =
      AllReduce({0, 0}, DataType::kInt32, ReduceOp::kSum, values.data(), values.size());
  REQUIRE(network.at(0).TryPost(request));
  MessageHeader wrong;
  wrong.wire_id = 7;
  wrong.operation = request.id;
  wrong.source = 1;
  network.at(0).OnMessage(wrong, {});
  Completion completion[1];
  REQUIRE(network.in_transit() > 0);
  CHECK(network.at(0).Poll(completion) == 0);
  SECTION("by Cancel") { network.at(0).Cancel(request.id); }
  SECTION("by Abort") { network.at(0).Abort("the job has ended"); }
  REQUIRE(network.at(0).Poll(completion) == 1);
  CHECK(completion[0].outcome == CollectiveOutcome::kDisagreement);
}

TEST_CASE("WireCommunicator: a node that misbehaves is named, and everything fails") {
  FakeNetwork network(2, TinyChunks(), 1);
  REQUIRE(network.at(0).TryPost(Barrier({0, 0})));
  network.at(0).OnNodeMisbehaved(NodeIndex(1), "sends what is no message");
  Completion completion[1];
  REQUIRE(network.at(0).Poll(completion) == 1);
  CHECK(completion[0].culprit == NodeIndex(1));
  CHECK(network.at(0).health() == absl::InternalError("node 1 sends what is no message"));
  CHECK(network.at(0).lost_node() == NodeIndex(-1));
}

TEST_CASE("WireCommunicator: a flood of messages ahead fails before it takes a gigabyte") {
  // One byte more than fits a small block.
  const std::size_t payload_bytes = GENERATE(std::size_t{0}, std::size_t{16385});
  CAPTURE(payload_bytes);
  FakeNetwork network(2, {}, 1);
  const std::vector<std::byte> payload(payload_bytes);
  MessageHeader header;
  header.wire_id = 7;
  header.source = 0;
  header.destination = 1;
  std::size_t taken = 0;
  while (network.at(1).health().ok() && taken < (std::size_t{2} << 30)) {
    header.operation.sequence += 1;
    network.at(1).OnMessage(header, payload);
    taken += EarlyMessagePool::TakenBytes(payload.size());
  }
  CHECK_FALSE(network.at(1).health().ok());
  CHECK_THAT(std::string(network.at(1).health().message()),
             Catch::Matchers::Contains("more ahead than it may"));
  CHECK(taken < (std::size_t{1} << 30));
}

// Recursive doubling over 16 nodes: four exchange with this one, and each may have sent all of its
// largest messages before this one has posted anything.
TEST_CASE(
    "WireCommunicator: those who are ahead by all that they may have in flight are believed") {
  FakeNetwork network(16, {}, 1);
  // The least that takes as much memory as a whole one.
  const std::vector<std::byte> payload(kMaxPayloadBytes / 2 + 1);
  MessageHeader header;
  header.wire_id = 7;
  header.destination = 1;
  for (const std::int32_t source : {0, 3, 5, 9}) {
    header.source = source;
    header.operation.sequence = 0;
    for (std::size_t sent = 0; sent < kMaxInFlightOperations; ++sent) {
      network.at(1).OnMessage(header, payload);
      header.operation.sequence += 1;
    }
  }
  CHECK(network.at(1).health() == absl::OkStatus());
}

TEST_CASE("WireCommunicator: who is farthest ahead is named, not who comes when it is too much") {
  FakeNetwork network(3, {}, 1);
  MessageHeader header;
  header.wire_id = 7;
  header.source = 2;
  header.destination = 1;
  const auto send = [&](std::int32_t source) {
    header.source = source;
    header.operation.sequence += 1;
    network.at(1).OnMessage(header, {});
  };
  send(0);
  const std::size_t most = kMaxInFlightOperations * std::size_t{FlatAllReduce::kMaxNodes};
  for (std::size_t held = 1; held < most; ++held) send(2);
  REQUIRE(network.at(1).health().ok());
  send(0);  // no farther ahead than it may be
  CHECK(network.at(1).health() == absl::InternalError("node 2 sends more ahead than it may"));
}

TEST_CASE("WireCommunicator: whatever a node sends, nothing is written outside of the buffer") {
  for (unsigned seed = 1; seed <= 200; ++seed) {
    std::mt19937 random(seed);
    FakeNetwork network(4, TinyChunks(), seed);
    std::vector<std::int32_t> guarded(1002, -1);
    const CollectiveRequest request =
        AllReduce({0, 0}, DataType::kInt32, ReduceOp::kSum, &guarded[1], 1000);
    REQUIRE(network.at(1).TryPost(request));
    REQUIRE(network.at(1).TryPost(Broadcast({1, 0}, 0, DataType::kInt32, &guarded[1], 1000)));
    REQUIRE(network.at(1).TryPost(Barrier({2, 0})));
    REQUIRE(
        network.at(1).TryPost(AllReduce({3, 0}, DataType::kInt32, ReduceOp::kSum, &guarded[1], 3)));
    std::vector<std::byte> junk(kMaxPayloadBytes);
    for (int i = 0; i < 500; ++i) {
      MessageHeader header;
      header.wire_id = 7;
      header.type = random() % 4 == 0 ? MessageType::kGrant : MessageType::kData;
      header.operation = {static_cast<std::uint32_t>(random() % 5),
                          static_cast<std::uint32_t>(random() % 2)};
      header.index = random() % 3 == 0 ? static_cast<std::uint32_t>(random()) : random() % 200;
      header.source = static_cast<std::int32_t>(random() % 6) - 1;
      header.destination = 1;
      CollectiveRequest claimed = request;
      if (header.operation.channel == 1)
        claimed = Broadcast({1, 0}, 0, DataType::kInt32, nullptr, 1000);
      if (header.operation.channel == 2) claimed = Barrier({2, 0});
      if (header.operation.channel == 3) claimed.element_count = 3;
      header.fingerprint =
          random() % 50 == 0 ? static_cast<std::uint32_t>(random()) : Fingerprint(claimed);
      const std::size_t sizes[] = {0, 4, 12, 32, 60, 64, 1000, junk.size()};
      network.at(1).OnMessage(header, {junk.data(), sizes[random() % 8]});
      network.at(1).Advance();
    }
    CHECK(guarded.front() == -1);
    CHECK(guarded.back() == -1);
    network.at(1).Abort("enough");
    while (network.in_transit() > 0) network.Step();
    network.at(1).Advance();
    Completion completions[16];
    CHECK(network.at(1).Poll(completions) == 4);
  }
}

}  // namespace
}  // namespace ringd
