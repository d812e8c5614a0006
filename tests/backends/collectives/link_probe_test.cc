#include "backends/collectives/link_probe.h"

#include <catch2/catch.hpp>
#include <span>
#include <vector>

#include "tests/backends/backend_world.h"
#include "tests/backends/collectives/fake_network.h"

namespace ringd {
namespace {

using Times = std::vector<LinkTimes>;

CollectiveRequest Probe(Times& times) {
  CollectiveRequest request;
  request.kind = CollectiveKind::kLinkProbe;
  request.data_type = DataType::kFloat64;
  request.element_count = 2 * times.size();
  request.buffer = std::as_writable_bytes(std::span(times)).data();
  return request;
}

void CheckTimes(const std::vector<Times>& by_node) {
  for (std::size_t from = 0; from < by_node.size(); ++from) {
    for (std::size_t to = 0; to < by_node.size(); ++to) {
      INFO(from << " to " << to);
      const LinkTimes& times = by_node[from][to];
      if (from == to) {
        CHECK((times.round_trip_seconds == 0 && times.message_seconds == 0));
      } else {
        CHECK((times.round_trip_seconds > 0 && times.round_trip_seconds < 20));
        CHECK((times.message_seconds > 0 && times.message_seconds < 20));
      }
    }
  }
}

}  // namespace

TEST_CASE("LinkProbe: ends on all nodes with figures of all links, however messages are delayed") {
  const int nodes = GENERATE(1, 2, 3, 4, 7);
  const auto seed = GENERATE(range(0u, 10u));
  INFO(nodes << " nodes, seed " << seed);
  FakeNetwork network(nodes, AlgorithmOptions(), seed);
  std::vector<Times> times(static_cast<std::size_t>(nodes), Times(static_cast<std::size_t>(nodes)));
  for (int node = 0; node < nodes; ++node) {
    REQUIRE(network.at(node).TryPost(Probe(times[static_cast<std::size_t>(node)])));
    for (std::uint32_t steps = network.Random(20); steps > 0; --steps) network.Step();
  }
  for (int node = 0; node < nodes; ++node) {
    Completion completion;
    for (int step = 0; network.at(node).Poll({&completion, 1}) == 0; ++step) {
      REQUIRE(step < 100'000);
      network.Step();
    }
    CHECK(completion.outcome == CollectiveOutcome::kDone);
  }
  CHECK(network.in_transit() == 0);
  CheckTimes(times);
}

TEST_CASE("LinkProbe: a message that no correct node sends ends it, and names the sender") {
  FakeNetwork network(3, AlgorithmOptions(), 1);
  Times times(3);
  const CollectiveRequest request = Probe(times);
  REQUIRE(network.at(0).TryPost(request));
  MessageHeader header;
  header.wire_id = 7;
  header.source = 2;
  header.destination = 0;
  header.fingerprint = Fingerprint(request);
  std::vector<std::byte> payload;
  SECTION("not the first") { header.index = 1; }
  SECTION("far beyond the last") { header.index = 99; }
  SECTION("an end before anything") { header.index = 16; }
  SECTION("an answer to what was not asked") { header.index = 0x100 | 3; }
  SECTION("an answer of another node than the one asked") { header.index = 0x100; }
  SECTION("bytes where there are none") { payload.resize(8); }
  network.at(0).OnMessage(header, payload);
  Completion completion;
  for (int step = 0; network.at(0).Poll({&completion, 1}) == 0; ++step) {
    REQUIRE(step < 1000);
    network.Step();
  }
  CHECK(completion.outcome == CollectiveOutcome::kDisagreement);
  CHECK(completion.culprit == NodeIndex(2));
}

TEST_CASE("LinkProbe: measures over UCX, and the communicator works on") {
  BackendWorld world(GENERATE(BackendKind::kUcx, BackendKind::kUcxTwoStreams), 4);
  std::vector<Times> times(4, Times(4));
  for (int node = 0; node < 4; ++node) {
    REQUIRE(world.at(node).TryPost(Probe(times[static_cast<std::size_t>(node)])));
  }
  REQUIRE(world.RunUntilCompleted(1));
  for (int node = 0; node < 4; ++node) {
    CHECK(world.Find(node, {})->outcome == CollectiveOutcome::kDone);
  }
  CheckTimes(times);

  std::vector<std::vector<float>> buffers(4, std::vector<float>(50'000, 1.0f));
  for (int node = 0; node < 4; ++node) {
    auto& buffer = buffers[static_cast<std::size_t>(node)];
    REQUIRE(world.at(node).TryPost(
        AllReduce({0, 1}, DataType::kFloat32, ReduceOp::kSum, buffer.data(), buffer.size())));
  }
  REQUIRE(world.RunUntilCompleted(2));
  for (const auto& buffer : buffers) CHECK(buffer == std::vector<float>(50'000, 4.0f));
}

TEST_CASE("LinkProbe: is given up at once when the communicator is aborted") {
  BackendWorld world(BackendKind::kUcx, 4);
  std::vector<Times> times(4, Times(4));
  // Node 3 never takes part.
  for (int node = 0; node < 3; ++node) {
    REQUIRE(world.at(node).TryPost(Probe(times[static_cast<std::size_t>(node)])));
  }
  for (int step = 0; step < 200; ++step) world.Step();
  for (int node = 0; node < 3; ++node) world.at(node).Abort("enough");
  REQUIRE(world.RunUntil([&] {
    return world.Find(0, {}) != nullptr && world.Find(1, {}) != nullptr &&
           world.Find(2, {}) != nullptr;
  }));
  CHECK(world.Find(0, {})->outcome == CollectiveOutcome::kAborted);
}

TEST_CASE("LinkProbe: what does not fit the number of nodes, or any backend, is refused") {
  BackendWorld ucx(BackendKind::kUcx, 2);
  Times three(3);
  REQUIRE(ucx.at(0).TryPost(Probe(three)));
  REQUIRE(ucx.RunUntil([&] { return ucx.Find(0, {}) != nullptr; }));
  CHECK(ucx.Find(0, {})->outcome == CollectiveOutcome::kUnsupported);

  BackendWorld loopback(BackendKind::kLoopback, 2);
  Times two(2);
  REQUIRE(loopback.at(0).TryPost(Probe(two)));
  REQUIRE(loopback.RunUntil([&] { return loopback.Find(0, {}) != nullptr; }));
  CHECK(loopback.Find(0, {})->outcome == CollectiveOutcome::kUnsupported);
}

}  // namespace ringd
