// What every backend computes: all kinds, sizes and numbers of nodes.
#include <catch2/catch.hpp>
#include <cstdint>
#include <vector>

#include "proto/types/data_type.h"
#include "tests/backends/backend_world.h"

namespace ringd {
namespace {

BackendKind AnyBackend() {
  return GENERATE(BackendKind::kLoopback, BackendKind::kUcx, BackendKind::kUcxTwoStreams,
                  BackendKind::kUcxSharedMemory, BackendKind::kTcp, BackendKind::kTcpTwoStreams);
}

// Small integers, so that sums are exact in every type and order.
template <typename T>
T Element(int node, std::size_t i) {
  return static_cast<T>((i * 7 + static_cast<std::size_t>(node) * 3 + 1) % 5);
}

template <typename T>
std::vector<T> Input(int node, std::size_t count) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = Element<T>(node, i);
  return values;
}

template <typename T, typename Combine>
std::vector<T> Expected(int node_count, std::size_t count, Combine combine) {
  std::vector<T> values = Input<T>(0, count);
  for (int node = 1; node < node_count; ++node) {
    for (std::size_t i = 0; i < count; ++i) {
      values[i] = static_cast<T>(combine(values[i], Element<T>(node, i)));
    }
  }
  return values;
}

template <typename T, typename Combine>
void CheckAllReduce(BackendWorld& world, OperationId id, DataType type, ReduceOp op,
                    std::size_t count, Combine combine,
                    AllReduceAlgorithm algorithm = AllReduceAlgorithm::kAuto) {
  std::vector<std::vector<T>> buffers;
  for (int node = 0; node < world.node_count(); ++node) buffers.push_back(Input<T>(node, count));
  for (int node = 0; node < world.node_count(); ++node) {
    auto& buffer = buffers[static_cast<std::size_t>(node)];
    CollectiveRequest request = AllReduce(id, type, op, buffer.data(), count);
    request.user_data = 1000 + static_cast<std::uint64_t>(node);
    request.algorithm = algorithm;
    REQUIRE(world.at(node).TryPost(request));
  }
  const auto done = [&] {
    for (int node = 0; node < world.node_count(); ++node) {
      if (world.Find(node, id) == nullptr) return false;
    }
    return true;
  };
  REQUIRE(world.RunUntil(done));
  const std::vector<T> expected = Expected<T>(world.node_count(), count, combine);
  for (int node = 0; node < world.node_count(); ++node) {
    INFO("node " << node << " of " << world.node_count() << ", " << count << " elements");
    const Completion& completion = *world.Find(node, id);
    CHECK(completion.outcome == CollectiveOutcome::kDone);
    CHECK(completion.user_data == 1000 + static_cast<std::uint64_t>(node));
    CHECK(completion.times.finished >= completion.times.posted);
    CHECK((buffers[static_cast<std::size_t>(node)] == expected));
  }
}

const auto kPlus = [](auto a, auto b) { return a + b; };

}  // namespace

TEST_CASE("Backend: of signed zeros and NaNs the same bits stay on every node, by any algorithm") {
  const BackendKind kind = GENERATE(BackendKind::kLoopback, BackendKind::kTcp);
  const int node_count = GENERATE(2, 3, 4, 5, 8);
  const auto algorithm =
      GENERATE(AllReduceAlgorithm::kDoubling, AllReduceAlgorithm::kFlat, AllReduceAlgorithm::kRing);
  if (algorithm == AllReduceAlgorithm::kFlat && node_count == 2) return;
  INFO(NameOf(kind) << ", " << node_count << " nodes, algorithm " << static_cast<int>(algorithm));
  BackendWorld world(kind, node_count);
  // +0, -0, and two NaNs, each in its turn on each node.
  constexpr std::uint32_t kBits[] = {0, 0x8000'0000, 0x7FC0'0000, 0xFFC0'0001};
  constexpr std::size_t kCount = 256;
  std::uint32_t number = 0;
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct}) {
    const OperationId id{0, number++};
    std::vector<std::vector<std::uint32_t>> buffers;
    for (int node = 0; node < node_count; ++node) {
      auto& bits = buffers.emplace_back(kCount);
      for (std::size_t i = 0; i < kCount; ++i) bits[i] = kBits[(i >> (2 * (node % 4))) % 4];
      CollectiveRequest request = AllReduce(id, DataType::kFloat32, op, bits.data(), kCount);
      request.algorithm = algorithm;
      REQUIRE(world.at(node).TryPost(request));
    }
    REQUIRE(world.RunUntil([&] {
      for (int node = 0; node < node_count; ++node) {
        if (world.Find(node, id) == nullptr) return false;
      }
      return true;
    }));
    for (int node = 1; node < node_count; ++node) {
      INFO("operator " << static_cast<int>(op) << ", node " << node);
      CHECK((buffers[static_cast<std::size_t>(node)] == buffers[0]));
    }
  }
}

TEST_CASE("Backend: all-reduce gives the sum on every node, for 1 to 8 nodes and any size") {
  const BackendKind kind = AnyBackend();
  const int node_count = GENERATE(1, 2, 3, 4, 5, 6, 7, 8);
  INFO(NameOf(kind) << ", " << node_count << " nodes");
  // Small chunks, so that rings of many chunks stay quick to test.
  AlgorithmOptions options;
  options.chunk_bytes = 4096;
  options.flat_all_reduce_bytes = 2048;
  options.small_all_reduce_bytes = 1024;
  BackendWorld world(kind, node_count, options);
  std::uint32_t sequence = 0;
  for (const std::size_t count : {0, 1, 2, 3, 7, 255, 256, 257, 1000, 4099, 65536, 100003}) {
    CheckAllReduce<float>(world, {0, sequence++}, DataType::kFloat32, ReduceOp::kSum, count, kPlus);
  }
}

TEST_CASE("Backend: the ring gives the sum also when elements are fewer than nodes") {
  const BackendKind kind = AnyBackend();
  INFO(NameOf(kind));
  AlgorithmOptions options;
  options.flat_all_reduce_bytes = 0;
  options.small_all_reduce_bytes = 0;
  BackendWorld world(kind, 5, options);
  std::uint32_t sequence = 0;
  for (const std::size_t count : {0, 1, 3, 4, 5, 6, 16, 17, 63, 81}) {
    CheckAllReduce<double>(world, {0, sequence++}, DataType::kFloat64, ReduceOp::kSum, count,
                           kPlus);
  }
}

TEST_CASE("Backend: an all-reduce takes the algorithm that it names") {
  const BackendKind kind = AnyBackend();
  const int node_count = GENERATE(1, 2, 3, 8);
  INFO(NameOf(kind) << ", " << node_count << " nodes");
  AlgorithmOptions options;
  options.chunk_bytes = 4096;
  options.flat_all_reduce_bytes = 0;
  options.small_all_reduce_bytes = 0;
  BackendWorld world(kind, node_count, options);
  std::uint32_t sequence = 0;
  for (const std::size_t count : {1, 1000, 32 * 1024}) {
    for (const auto algorithm :
         {AllReduceAlgorithm::kFlat, AllReduceAlgorithm::kDoubling, AllReduceAlgorithm::kRing}) {
      CheckAllReduce<float>(world, {3, sequence++}, DataType::kFloat32, ReduceOp::kSum, count,
                            kPlus, algorithm);
    }
  }
  // More than one message.
  for (const auto algorithm : {AllReduceAlgorithm::kFlat, AllReduceAlgorithm::kDoubling}) {
    std::vector<float> values(32 * 1024 + 1);
    CollectiveRequest request = AllReduce({3, sequence++}, DataType::kFloat32, ReduceOp::kSum,
                                          values.data(), values.size());
    request.algorithm = algorithm;
    REQUIRE(world.at(0).TryPost(request));
    REQUIRE(world.RunUntil([&] { return world.Find(0, request.id) != nullptr; }));
    CHECK(world.Find(0, request.id)->outcome == CollectiveOutcome::kUnsupported);
  }
}

TEST_CASE("Backend: all-reduce of megabytes with default options") {
  const BackendKind kind = AnyBackend();
  INFO(NameOf(kind));
  BackendWorld world(kind, GENERATE(2, 3));
  CheckAllReduce<float>(world, {0, 0}, DataType::kFloat32, ReduceOp::kSum, (9 << 20) + 13, kPlus);
  CheckAllReduce<std::uint8_t>(world, {0, 1}, DataType::kUint8, ReduceOp::kSum, 1'000'001, kPlus);
}

TEST_CASE("Backend: all-reduce knows every operation") {
  const BackendKind kind = AnyBackend();
  INFO(NameOf(kind));
  AlgorithmOptions options;
  options.flat_all_reduce_bytes = 1024;
  BackendWorld world(kind, 3, options);
  // Flat, by recursive doubling, by the ring.
  for (const std::size_t count : {std::size_t{50}, std::size_t{1000}, std::size_t{50000}}) {
    const auto base = static_cast<std::uint32_t>(count);
    CheckAllReduce<std::int32_t>(world, {1, base}, DataType::kInt32, ReduceOp::kMin, count,
                                 [](auto a, auto b) { return a < b ? a : b; });
    CheckAllReduce<std::int64_t>(world, {2, base}, DataType::kInt64, ReduceOp::kMax, count,
                                 [](auto a, auto b) { return a > b ? a : b; });
    CheckAllReduce<double>(world, {3, base}, DataType::kFloat64, ReduceOp::kProduct, count,
                           [](auto a, auto b) { return a * b; });
    // Who unpacks divides.
    CheckAllReduce<float>(world, {4, base}, DataType::kFloat32, ReduceOp::kAverage, count, kPlus);
    CheckAllReduce<std::int8_t>(world, {5, base}, DataType::kInt8, ReduceOp::kSum, count, kPlus);
  }
}

TEST_CASE("Backend: all-reduce adds bfloat16 as bfloat16") {
  const BackendKind kind = AnyBackend();
  INFO(NameOf(kind));
  BackendWorld world(kind, 4);
  const std::size_t count = GENERATE(std::size_t{33}, std::size_t{70001});
  std::vector<std::vector<std::uint16_t>> buffers(4, std::vector<std::uint16_t>(count, 0x3f80));
  for (int node = 0; node < 4; ++node) {
    REQUIRE(
        world.at(node).TryPost(AllReduce({0, 0}, DataType::kBfloat16, ReduceOp::kSum,
                                         buffers[static_cast<std::size_t>(node)].data(), count)));
  }
  REQUIRE(world.RunUntilCompleted(1));
  for (const auto& buffer : buffers) {
    CHECK((buffer == std::vector<std::uint16_t>(count, 0x4080)));  // 4 x 1.0
  }
}

TEST_CASE("Backend: broadcast copies any root's bytes to every node") {
  const BackendKind kind = AnyBackend();
  const int node_count = GENERATE(1, 2, 3, 5, 8);
  INFO(NameOf(kind) << ", " << node_count << " nodes");
  AlgorithmOptions options;
  options.chunk_bytes = 4096;
  options.small_broadcast_bytes = 1024;
  BackendWorld world(kind, node_count, options);
  std::uint32_t sequence = 0;
  for (const std::size_t count : {0, 1, 1000, 1025, 70001}) {
    for (int root = 0; root < node_count; ++root) {
      const OperationId id{0, sequence++};
      std::vector<std::vector<std::uint8_t>> buffers;
      for (int node = 0; node < node_count; ++node) {
        buffers.push_back(Input<std::uint8_t>(node, count));
        buffers.back().resize(count + 1);  // so that data() of none is no null pointer
      }
      for (int node = 0; node < node_count; ++node) {
        REQUIRE(world.at(node).TryPost(Broadcast(
            id, root, DataType::kUint8, buffers[static_cast<std::size_t>(node)].data(), count)));
      }
      REQUIRE(world.RunUntilCompleted(sequence));
      for (int node = 0; node < node_count; ++node) {
        CHECK(world.Find(node, id)->outcome == CollectiveOutcome::kDone);
        auto expected = Input<std::uint8_t>(root, count);
        expected.push_back(0);
        CHECK((buffers[static_cast<std::size_t>(node)] == expected));
      }
    }
  }
}

TEST_CASE("Backend: nobody leaves a barrier before all have entered it") {
  const BackendKind kind = AnyBackend();
  const int node_count = GENERATE(1, 2, 3, 5, 8);
  INFO(NameOf(kind) << ", " << node_count << " nodes");
  BackendWorld world(kind, node_count);
  const int last = node_count / 2;
  for (int node = 0; node < node_count; ++node) {
    if (node != last) REQUIRE(world.at(node).TryPost(Barrier({7, 3})));
  }
  for (int i = 0; i < 2000; ++i) world.Step();
  for (int node = 0; node < node_count; ++node) CHECK(world.Find(node, {7, 3}) == nullptr);
  REQUIRE(world.at(last).TryPost(Barrier({7, 3})));
  REQUIRE(world.RunUntilCompleted(1));
  for (int node = 0; node < node_count; ++node) {
    CHECK(world.Find(node, {7, 3})->outcome == CollectiveOutcome::kDone);
  }
}

TEST_CASE("Backend: what it can't do it says, and the communicator stays usable") {
  const BackendKind kind = AnyBackend();
  INFO(NameOf(kind));
  BackendWorld world(kind, 2);
  float value = 1;
  const auto no_op = static_cast<ReduceOp>(99);
  REQUIRE(world.at(0).TryPost(AllReduce({0, 0}, DataType::kFloat32, no_op, &value, 1)));
  REQUIRE(world.at(1).TryPost(Broadcast({0, 0}, 5, DataType::kFloat32, &value, 1)));
  REQUIRE(world.RunUntilCompleted(1));
  CHECK(world.Find(0, {0, 0})->outcome == CollectiveOutcome::kUnsupported);
  CHECK(world.Find(1, {0, 0})->outcome == CollectiveOutcome::kUnsupported);
  CheckAllReduce<float>(world, {0, 1}, DataType::kFloat32, ReduceOp::kSum, 10, kPlus);
}

}  // namespace ringd
