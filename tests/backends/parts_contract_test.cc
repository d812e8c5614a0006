// What every backend makes of parts: reduce-scatter and all-gather, of even, uneven and empty
// blocks.
#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "proto/types/data_type.h"
#include "tests/backends/backend_world.h"
#include "tests/backends/part_accessor.h"

namespace ringd {
namespace {

constexpr CollectiveKind kKinds[] = {CollectiveKind::kReduceScatter, CollectiveKind::kAllGather};

BackendKind AnyBackend() {
  return GENERATE(BackendKind::kLoopback, BackendKind::kUcx, BackendKind::kUcxTwoStreams,
                  BackendKind::kUcxSharedMemory, BackendKind::kTcp, BackendKind::kTcpTwoStreams);
}

// Small chunks, so that rings of many chunks stay quick to test.
AlgorithmOptions SmallChunks() {
  AlgorithmOptions options;
  options.chunk_bytes = 4096;
  options.small_all_reduce_bytes = 1024;
  return options;
}

// Elements of each node's block: even, uneven, some empty, only one that is not, none at all.
std::vector<std::vector<std::size_t>> Divisions(std::size_t nodes) {
  std::vector<std::vector<std::size_t>> divisions(6, std::vector<std::size_t>(nodes));
  for (std::size_t node = 0; node < nodes; ++node) {
    divisions[0][node] = 1500;
    divisions[1][node] = 1 + node * 1037;
    divisions[2][node] = (nodes - node) * (nodes - node) * 211;
    divisions[3][node] = node % 2 == 1 ? 2049 : 0;
    divisions[4][node] = node == nodes / 2 ? 9001 : 0;
  }
  return divisions;
}

bool AllCompleted(BackendWorld& world, OperationId id) {
  return world.RunUntil([&] {
    for (int node = 0; node < world.node_count(); ++node) {
      if (world.Find(node, id) == nullptr) return false;
    }
    return true;
  });
}

template <typename T>
void CheckParts(BackendWorld& world, OperationId id, CollectiveKind kind, DataType type,
                ReduceOp op, const std::vector<std::size_t>& counts, std::size_t gap = 0) {
  PartedOperation<T> operation(id, kind, type, op, counts, gap, /*refusals=*/id.sequence % 3,
                               /*packs=*/id.sequence % 2 == 0);
  for (int node = 0; node < world.node_count(); ++node) {
    REQUIRE(world.at(node).TryPost(operation.Request(node)));
  }
  REQUIRE(AllCompleted(world, id));
  for (int node = 0; node < world.node_count(); ++node) {
    INFO(Name(kind) << " of " << Name(type) << " on node " << node << " of " << counts.size());
    CHECK(world.Find(node, id)->outcome == CollectiveOutcome::kDone);
    CHECK(operation.ProblemOf(node) == "");
  }
}

}  // namespace

TEST_CASE("Backend: parts of any sizes reach whom they belong to, for 1 to 8 nodes") {
  const BackendKind kind = AnyBackend();
  const int node_count = GENERATE(1, 2, 3, 4, 5, 7, 8);
  INFO(NameOf(kind) << ", " << node_count << " nodes");
  BackendWorld world(kind, node_count, SmallChunks());
  std::uint32_t sequence = 0;
  for (const CollectiveKind collective : kKinds) {
    for (const auto& counts : Divisions(static_cast<std::size_t>(node_count))) {
      for (const std::size_t gap : {0U, 13U}) {
        CheckParts<float>(world, {0, sequence++}, collective, DataType::kFloat32, ReduceOp::kSum,
                          counts, gap);
      }
    }
  }
}

TEST_CASE("Backend: parts of every type of element") {
  const BackendKind kind = AnyBackend();
  INFO(NameOf(kind));
  BackendWorld world(kind, 3, SmallChunks());
  std::uint32_t sequence = 0;
  const std::vector<std::size_t> counts = {3001, 0, 70001};
  for (const CollectiveKind collective : kKinds) {
    const auto id = [&] { return OperationId{1, sequence++}; };
    CheckParts<double>(world, id(), collective, DataType::kFloat64, ReduceOp::kSum, counts);
    CheckParts<std::int8_t>(world, id(), collective, DataType::kInt8, ReduceOp::kSum, counts);
    CheckParts<std::uint8_t>(world, id(), collective, DataType::kUint8, ReduceOp::kMax, counts);
    CheckParts<std::int32_t>(world, id(), collective, DataType::kInt32, ReduceOp::kMax, counts);
    CheckParts<std::int64_t>(world, id(), collective, DataType::kInt64, ReduceOp::kSum, counts);
  }
}

TEST_CASE("Backend: parts of bfloat16 are added as bfloat16, and gathered as they are") {
  const BackendKind kind = AnyBackend();
  INFO(NameOf(kind));
  BackendWorld world(kind, 4);
  const std::vector<ByteRange> blocks = BlocksOf({33, 1, 0, 70001}, 2);
  const std::size_t count = blocks.back().end / 2;
  std::uint32_t sequence = 0;
  for (const CollectiveKind collective : kKinds) {
    std::vector<std::vector<std::uint16_t>> buffers(4, std::vector<std::uint16_t>(count, 0x3f80));
    for (int node = 0; node < 4; ++node) {
      CollectiveRequest request = AllReduce({0, sequence}, DataType::kBfloat16, ReduceOp::kSum,
                                            buffers[static_cast<std::size_t>(node)].data(), count);
      request.kind = collective;
      request.blocks = blocks;
      REQUIRE(world.at(node).TryPost(request));
    }
    REQUIRE(AllCompleted(world, {0, sequence++}));
    for (std::size_t node = 0; node < 4; ++node) {
      const bool combines = collective == CollectiveKind::kReduceScatter;
      for (std::size_t i = blocks[node].begin / 2; i < blocks[node].end / 2; ++i) {
        REQUIRE(buffers[node][i] == (combines ? 0x4080 : 0x3f80));  // 4 x 1.0
      }
    }
  }
}

TEST_CASE("Backend: without blocks and accessor the buffer is divided evenly, in place") {
  const BackendKind kind = AnyBackend();
  const int node_count = GENERATE(1, 2, 5);
  INFO(NameOf(kind) << ", " << node_count << " nodes");
  BackendWorld world(kind, node_count, SmallChunks());
  std::uint32_t sequence = 0;
  for (const std::size_t count : {0, 1, 17, 5000, 40000}) {
    const BlockMap map =
        BlockMap::Even(count * 4, static_cast<std::uint32_t>(node_count), kMaxChunkBytes);
    for (const CollectiveKind collective : kKinds) {
      const bool combines = collective == CollectiveKind::kReduceScatter;
      std::vector<std::vector<float>> buffers;
      for (int node = 0; node < node_count; ++node) {
        buffers.emplace_back(count, static_cast<float>(node + 1));
        CollectiveRequest request = AllReduce({0, sequence}, DataType::kFloat32, ReduceOp::kSum,
                                              buffers.back().data(), count);
        request.kind = collective;
        REQUIRE(world.at(node).TryPost(request));
      }
      REQUIRE(AllCompleted(world, {0, sequence++}));
      const float sum = static_cast<float>(node_count * (node_count + 1)) / 2;
      for (std::size_t node = 0; node < buffers.size(); ++node) {
        for (std::uint32_t block = 0; block < map.block_count(); ++block) {
          if (combines && block != node) continue;
          const ByteRange range = map.Block(block);
          for (std::size_t i = range.begin / 4; i < range.end / 4; ++i) {
            REQUIRE(buffers[node][i] == (combines ? sum : static_cast<float>(block + 1)));
          }
        }
      }
    }
  }
}

TEST_CASE("Backend: nobody completes a reduce-scatter of its own part before all have posted") {
  const BackendKind kind = AnyBackend();
  const int node_count = GENERATE(2, 3, 5);
  INFO(NameOf(kind) << ", " << node_count << " nodes");
  BackendWorld world(kind, node_count, SmallChunks());
  std::uint32_t sequence = 0;
  for (const CollectiveKind collective : kKinds) {
    const OperationId id{7, sequence++};
    PartedOperation<float> operation(id, collective, DataType::kFloat32, ReduceOp::kSum,
                                     Divisions(static_cast<std::size_t>(node_count))[1], 0, 0,
                                     false);
    const int last = node_count / 2;
    for (int node = 0; node < node_count; ++node) {
      if (node != last) REQUIRE(world.at(node).TryPost(operation.Request(node)));
    }
    for (int i = 0; i < 500; ++i) world.Step();
    for (int node = 0; node < node_count; ++node) CHECK(world.Find(node, id) == nullptr);
    REQUIRE(world.at(last).TryPost(operation.Request(last)));
    REQUIRE(AllCompleted(world, id));
    for (int node = 0; node < node_count; ++node) CHECK(operation.ProblemOf(node) == "");
  }
}

TEST_CASE("Backend: nodes that disagree about the blocks hear of it") {
  const BackendKind kind = AnyBackend();
  INFO(NameOf(kind));
  BackendWorld world(kind, 2, SmallChunks());
  for (const CollectiveKind collective : kKinds) {
    const OperationId id{static_cast<std::uint32_t>(collective), 0};
    std::vector<std::vector<float>> buffers(2, std::vector<float>(300));
    const std::vector<ByteRange> blocks[] = {BlocksOf({100, 200}, 4), BlocksOf({101, 199}, 4)};
    for (int node = 0; node < 2; ++node) {
      CollectiveRequest request = AllReduce(id, DataType::kFloat32, ReduceOp::kSum,
                                            buffers[static_cast<std::size_t>(node)].data(), 300);
      request.kind = collective;
      request.blocks = blocks[node];
      REQUIRE(world.at(node).TryPost(request));
    }
    REQUIRE(AllCompleted(world, id));
    for (int node = 0; node < 2; ++node) {
      CHECK(world.Find(node, id)->outcome == CollectiveOutcome::kDisagreement);
    }
  }
}

TEST_CASE("Backend: blocks that no request may have are unsupported") {
  const BackendKind kind = AnyBackend();
  INFO(NameOf(kind));
  BackendWorld world(kind, 2);
  std::vector<float> buffer(300);
  std::uint32_t sequence = 0;
  const auto outcome = [&](CollectiveKind collective, std::vector<ByteRange> blocks) {
    CollectiveRequest request =
        AllReduce({0, sequence}, DataType::kFloat32, ReduceOp::kSum, buffer.data(), buffer.size());
    request.kind = collective;
    request.blocks = blocks;
    REQUIRE(world.at(0).TryPost(request));
    REQUIRE(world.RunUntil([&] { return world.Find(0, request.id) != nullptr; }));
    return world.Find(0, {0, sequence++})->outcome;
  };
  for (const CollectiveKind collective : kKinds) {
    CHECK(outcome(collective, {{0, 400}}) == CollectiveOutcome::kUnsupported);
    CHECK(outcome(collective, {{0, 400}, {396, 1200}}) == CollectiveOutcome::kUnsupported);
    CHECK(outcome(collective, {{400, 396}, {400, 1200}}) == CollectiveOutcome::kUnsupported);
    CHECK(outcome(collective, {{0, 402}, {404, 1200}}) == CollectiveOutcome::kUnsupported);
    CHECK(outcome(collective, {{0, 400}, {400, 1204}}) == CollectiveOutcome::kUnsupported);
  }
  CHECK(outcome(CollectiveKind::kAllReduce, {{0, 400}, {400, 1200}}) ==
        CollectiveOutcome::kUnsupported);
}

}  // namespace ringd
