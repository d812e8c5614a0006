#include "backends/collectives/flat_all_reduce.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "proto/reduce/float16.h"
#include "tests/backends/backend_world.h"
#include "tests/backends/collectives/fake_network.h"

namespace ringd {
namespace {

using Bytes = std::vector<std::byte>;

// One all-reduce of two elements of `input` by node, with messages in an order drawn from `seed`.
// The bytes of every node; nothing if they never came.
std::vector<Bytes> Reduce(const std::vector<Bytes>& inputs, DataType type, std::uint32_t channel,
                          unsigned seed) {
  const int node_count = static_cast<int>(inputs.size());
  FakeNetwork network(node_count, AlgorithmOptions(), seed);
  std::vector<Bytes> buffers = inputs;
  std::mt19937 random(seed);
  std::vector<int> order;
  for (int node = 0; node < node_count; ++node) order.push_back(node);
  std::shuffle(order.begin(), order.end(), random);
  for (const int node : order) {
    Bytes& buffer = buffers[static_cast<std::size_t>(node)];
    if (!network.at(node).TryPost(AllReduce({channel, 0}, type, ReduceOp::kSum, buffer.data(),
                                            buffer.size() / SizeOf(type)))) {
      return {};
    }
    for (unsigned steps = random() % 8; steps > 0; --steps) network.Step();
  }
  for (int node = 0; node < node_count; ++node) {
    Completion completion[1];
    for (int step = 0; network.at(node).Poll(completion) == 0; ++step) {
      if (step == 10'000) return {};
      network.Step();
    }
  }
  return buffers;
}

Bytes Floats(std::initializer_list<float> values) {
  Bytes bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), std::data(values), bytes.size());
  return bytes;
}

}  // namespace

TEST_CASE("FlatAllReduce: every node gets the same bits, whoever is the hub and comes first") {
  // Sums that depend on their order.
  const std::vector<Bytes> inputs = {Floats({1e8f, 3.0f}), Floats({1.0f, 1e8f}),
                                     Floats({-1e8f, 0.7f}), Floats({0.3f, -1e8f}),
                                     Floats({7.7f, 1e-3f})};
  float first = 1e8f;
  float second = 3.0f;
  for (std::size_t node = 1; node < inputs.size(); ++node) {
    float values[2];
    std::memcpy(values, inputs[node].data(), sizeof(values));
    first += values[0];
    second += values[1];
  }
  const Bytes expected = Floats({first, second});
  for (std::uint32_t channel = 0; channel < 7; ++channel) {
    for (unsigned seed = 1; seed <= 20; ++seed) {
      INFO("channel " << channel << ", seed " << seed);
      const std::vector<Bytes> results = Reduce(inputs, DataType::kFloat32, channel, seed);
      REQUIRE(results.size() == inputs.size());
      for (const Bytes& result : results) REQUIRE((result == expected));
    }
  }
}

TEST_CASE("FlatAllReduce: 16-bit numbers of many nodes are rounded once") {
  // 1 + 15 * 2^-8 in bfloat16: each addend alone would be lost.
  std::vector<Bytes> inputs;
  for (int node = 0; node < 16; ++node) {
    const std::uint16_t value = FloatToBfloat16(node == 0 ? 1.0f : 0x1p-8f);
    inputs.emplace_back(sizeof(value));
    std::memcpy(inputs.back().data(), &value, sizeof(value));
  }
  const std::uint16_t expected = FloatToBfloat16(1.0f + 15 * 0x1p-8f);
  for (const Bytes& result : Reduce(inputs, DataType::kBfloat16, 3, 1)) {
    std::uint16_t value = 0;
    std::memcpy(&value, result.data(), sizeof(value));
    CHECK(value == expected);
  }
}

TEST_CASE("FlatAllReduce: takes two messages for each node but the hub") {
  constexpr int kNodes = 8;
  const bool barrier = GENERATE(false, true);
  const bool named = GENERATE(false, true);
  AlgorithmOptions options;
  if (named) options.flat_all_reduce_bytes = 0;
  FakeNetwork network(kNodes, options, 1);
  std::vector<float> values(kNodes, 1.0f);
  for (int node = 0; node < kNodes; ++node) {
    float* const value = &values[static_cast<std::size_t>(node)];
    CollectiveRequest request =
        barrier ? Barrier({2, 0}) : AllReduce({2, 0}, DataType::kFloat32, ReduceOp::kSum, value, 1);
    if (named) request.algorithm = AllReduceAlgorithm::kFlat;
    REQUIRE(network.at(node).TryPost(request));
  }
  for (int step = 0; step < 1000; ++step) network.Step();
  std::uint64_t sent = 0;
  for (int node = 0; node < kNodes; ++node) {
    const CommunicatorStatistics statistics = network.at(node).Statistics();
    CHECK(statistics.operations_done == 1);
    for (const NeighbourStatistics& neighbour : statistics.neighbours) {
      sent += neighbour.messages_sent;
      // All go to the hub or come from it.
      CHECK((node == 2 || neighbour.node == NodeIndex(2)));
    }
    if (!barrier) CHECK(values[static_cast<std::size_t>(node)] == kNodes);
  }
  CHECK(sent == 2 * (kNodes - 1));
}

TEST_CASE("FlatAllReduce: a second copy of an input, or a result from another node, is refused") {
  FakeNetwork network(4, AlgorithmOptions(), 1);
  float value = 1.0f;
  const CollectiveRequest at_root =
      AllReduce({1, 0}, DataType::kFloat32, ReduceOp::kSum, &value, 1);
  const CollectiveRequest elsewhere =
      AllReduce({2, 0}, DataType::kFloat32, ReduceOp::kSum, &value, 1);
  REQUIRE(network.at(1).TryPost(at_root));
  REQUIRE(network.at(1).TryPost(elsewhere));
  const float other = 5.0f;
  const auto payload = std::as_bytes(std::span(&other, 1));
  MessageHeader header;
  header.wire_id = 7;
  header.operation = at_root.id;
  header.fingerprint = Fingerprint(at_root);
  header.source = 3;
  header.destination = 1;
  network.at(1).OnMessage(header, payload);
  network.at(1).OnMessage(header, payload);
  header.operation = elsewhere.id;
  header.index = 1;
  network.at(1).OnMessage(header, payload);
  while (network.in_transit() > 0) network.Step();
  network.at(1).Advance();
  Completion completions[2];
  REQUIRE(network.at(1).Poll(completions) == 2);
  for (const Completion& completion : completions) {
    CHECK(completion.outcome == CollectiveOutcome::kDisagreement);
    CHECK(completion.culprit == NodeIndex(3));
  }
  CHECK(value == 1.0f);
}

}  // namespace ringd
