#include "backends/collectives/wire_communicator.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "proto/reduce/float16.h"
#include "tests/backends/backend_world.h"
#include "tests/backends/collectives/fake_network.h"

namespace ringd {
namespace {

// Posts random operations at random times on random nodes while messages go astray; true if all
// ended with the right result.
bool RunRandomly(unsigned seed) {
  std::mt19937 random(seed);
  // Now and then more nodes than go through one of them.
  const int node_count =
      seed % 16 == 0 ? 17 + static_cast<int>(random() % 3) : 1 + static_cast<int>(random() % 9);
  constexpr int kOperations = 24;
  AlgorithmOptions options = TinyChunks();
  if (seed % 2 == 0) options.flat_all_reduce_bytes = 0;
  FakeNetwork network(node_count, options, seed);
  std::vector<int> kinds;
  std::vector<std::size_t> counts;
  std::vector<std::vector<std::vector<std::int32_t>>> buffers;
  // Some operations bring accessors, with the data elsewhere.
  std::vector<std::vector<std::unique_ptr<CheckingAccessor>>> accessors(kOperations);
  for (int i = 0; i < kOperations; ++i) {
    kinds.push_back(static_cast<int>(random() % 6));
    counts.push_back(random() % 3 == 0 ? random() % 3000 : random() % 20);
    buffers.emplace_back();
    for (int node = 0; node < node_count; ++node) {
      buffers.back().emplace_back(counts.back() + 1, node + i);
      if (i % 3 == 0) continue;
      const auto way =
          random() % 2 == 0 ? CheckingAccessor::Way::kInPlace : CheckingAccessor::Way::kPacked;
      accessors[static_cast<std::size_t>(i)].push_back(std::make_unique<CheckingAccessor>(
          way, BytesOf(std::vector<std::int32_t>(counts.back(), node + i)), Scaling{},
          static_cast<int>(random() % 3)));
    }
  }
  std::vector<std::vector<int>> to_post(static_cast<std::size_t>(node_count));
  for (auto& list : to_post) {
    for (int i = 0; i < kOperations; ++i) list.push_back(i);
    std::shuffle(list.begin(), list.end(), random);
  }
  int completed = 0;
  for (int step = 0; step < 2'000'000 && completed < kOperations * node_count; ++step) {
    const int node = static_cast<int>(random() % static_cast<unsigned>(node_count));
    auto& list = to_post[static_cast<std::size_t>(node)];
    if (random() % 16 == 0 && !list.empty()) {
      const auto i = static_cast<std::size_t>(list.back());
      list.pop_back();
      std::int32_t* const buffer = buffers[i][static_cast<std::size_t>(node)].data();
      const OperationId id{static_cast<std::uint32_t>(i), 0};
      const int root = static_cast<int>(i) % node_count;
      CollectiveRequest request =
          kinds[i] == 0   ? Barrier(id)
          : kinds[i] == 1 ? Broadcast(id, root, DataType::kInt32, buffer, counts[i])
                          : AllReduce(id, DataType::kInt32, ReduceOp::kSum, buffer, counts[i]);
      if (!accessors[i].empty() && kinds[i] != 0) {
        accessors[i][static_cast<std::size_t>(node)]->Serve(request);
      }
      if (!network.at(node).TryPost(request)) return false;
    }
    network.Step();
    Completion completion[4];
    const std::size_t got = network.at(node).Poll(completion);
    for (std::size_t k = 0; k < got; ++k) {
      if (completion[k].outcome != CollectiveOutcome::kDone) return false;
    }
    completed += static_cast<int>(got);
  }
  if (completed != kOperations * node_count) return false;
  for (std::size_t i = 0; i < kOperations; ++i) {
    for (int node = 0; node < node_count; ++node) {
      const auto op = static_cast<std::int32_t>(i);
      std::int32_t expected = node + op;
      if (kinds[i] == 1) expected = op % node_count + op;
      if (kinds[i] > 1) expected = node_count * op + node_count * (node_count - 1) / 2;
      const auto& buffer = buffers[i][static_cast<std::size_t>(node)];
      if (buffer[counts[i]] != node + op) return false;
      if (!accessors[i].empty() && kinds[i] != 0) {
        const CheckingAccessor& own = *accessors[i][static_cast<std::size_t>(node)];
        const bool takes = kinds[i] != 1 || op % node_count == node;
        if (!own.violation().empty() || !own.AllHandedOverOnce()) return false;
        if (!(takes ? own.AllTakenOnce() : own.NoneTaken())) return false;
        if (own.data() != BytesOf(std::vector<std::int32_t>(counts[i], expected))) return false;
        continue;
      }
      for (std::size_t k = 0; k < counts[i]; ++k) {
        if (buffer[k] != expected) return false;
      }
    }
  }
  return true;
}

}  // namespace

TEST_CASE("WireCommunicator: what is posted later has the higher order") {
  FakeNetwork network(2, TinyChunks(), 1);
  std::vector<std::vector<float>> buffers(8, std::vector<float>(200, 1.0F));
  std::uint64_t last = 0;
  for (std::uint32_t i = 0; i < 4; ++i) {
    for (int node = 0; node < 2; ++node) {
      auto& buffer = buffers[2 * i + static_cast<std::uint32_t>(node)];
      REQUIRE(network.at(node).TryPost(
          AllReduce({i, 0}, DataType::kFloat32, ReduceOp::kSum, buffer.data(), buffer.size())));
    }
    const auto [lowest, highest] = network.OrdersOf({i, 0});
    CHECK(lowest == highest);
    CHECK(lowest > last);
    last = highest;
    // Then the object that carried the operation out does the next one.
    for (int step = 0; i % 2 == 1 && step < 2000; ++step) network.Step();
  }
  CHECK(network.in_transit() == 0);
}

TEST_CASE("WireCommunicator: a turn hands no more than a chunk of bulk to the wire") {
  FakeNetwork network(2, AlgorithmOptions(), 1);
  constexpr int kOperations = 5;
  std::vector<std::vector<float>> buffers(kOperations, std::vector<float>(1 << 18, 1.0f));
  std::size_t before = 0;
  const auto new_messages = [&] {
    return network.in_transit() - std::exchange(before, network.in_transit());
  };
  for (int i = 0; i < kOperations; ++i) {
    REQUIRE(network.at(0).TryPost(AllReduce({static_cast<std::uint32_t>(i), 0}, DataType::kFloat32,
                                            ReduceOp::kSum,
                                            buffers[static_cast<std::size_t>(i)].data(), 1 << 18)));
    // A chunk, and word to the other node that it may send.
    CHECK(new_messages() == 2);
  }
  // The other chunk that each may send unasked, one a turn.
  for (int i = 0; i < kOperations; ++i) {
    CHECK(network.at(0).HasPendingWork());
    network.at(0).Advance();
    CHECK(new_messages() == 1);
  }
  network.at(0).Advance();
  CHECK(new_messages() == 0);
  CHECK_FALSE(network.at(0).HasPendingWork());
}

TEST_CASE("WireCommunicator: any order of messages and posts gives the right results") {
  for (unsigned seed = 1; seed <= 300; ++seed) {
    INFO("seed " << seed);
    REQUIRE(RunRandomly(seed));
  }
}

TEST_CASE("WireCommunicator: all nodes get the same bits, scaled, whatever the algorithm") {
  const auto type = GENERATE(DataType::kFloat32, DataType::kBfloat16);
  const std::size_t bytes = GENERATE(4, 8, 32, 640, 2000);
  for (unsigned seed = 1; seed <= 40; ++seed) {
    const int node_count = 2 + static_cast<int>(seed % 6);
    INFO(Name(type) << ", " << bytes << " bytes, " << node_count << " nodes, seed " << seed);
    FakeNetwork network(node_count, TinyChunks(), seed);
    std::vector<std::vector<std::byte>> buffers(static_cast<std::size_t>(node_count));
    std::vector<std::unique_ptr<CheckingAccessor>> accessors;
    for (auto& buffer : buffers) {
      buffer.resize(bytes);
      std::vector<std::byte> data;
      for (std::size_t i = 0; i < bytes / SizeOf(type); ++i) {
        const float value = static_cast<float>(network.Random(2000)) / 7.0f - 100.0f;
        const auto element = type == DataType::kFloat32
                                 ? BytesOf(std::vector<float>{value})
                                 : BytesOf(std::vector<std::uint16_t>{FloatToBfloat16(value)});
        data.insert(data.end(), element.begin(), element.end());
      }
      const auto way =
          network.Random(2) == 0 ? CheckingAccessor::Way::kInPlace : CheckingAccessor::Way::kPacked;
      accessors.push_back(std::make_unique<CheckingAccessor>(way, data, Scaling{0.3, node_count}));
    }
    for (int node = 0; node < node_count; ++node) {
      const auto index = static_cast<std::size_t>(node);
      CollectiveRequest request =
          AllReduce({2, 0}, type, ReduceOp::kAverage, buffers[index].data(), bytes / SizeOf(type));
      accessors[index]->Serve(request);
      REQUIRE(network.at(node).TryPost(request));
    }
    for (int step = 0; step < 20'000; ++step) network.Step();
    for (const auto& own : accessors) {
      REQUIRE(own->AllHandedOverOnce());
      REQUIRE((own->data() == accessors.front()->data()));
    }
  }
}

TEST_CASE(
    "WireCommunicator: an operation that one node never starts leaves all inputs as they are") {
  const std::size_t count = GENERATE(1, 7, 500);
  const auto way = GENERATE(CheckingAccessor::Way::kInPlace, CheckingAccessor::Way::kPacked);
  for (unsigned seed = 1; seed <= 30; ++seed) {
    const int node_count = 2 + static_cast<int>(seed % 5);
    INFO(count << " elements, " << node_count << " nodes, seed " << seed);
    FakeNetwork network(node_count, TinyChunks(), seed);
    const int absent = static_cast<int>(network.Random(static_cast<std::uint32_t>(node_count)));
    std::vector<std::vector<std::int32_t>> buffers(static_cast<std::size_t>(node_count),
                                                   std::vector<std::int32_t>(count));
    std::vector<std::unique_ptr<CheckingAccessor>> accessors;
    for (int node = 0; node < node_count; ++node) {
      accessors.push_back(std::make_unique<CheckingAccessor>(
          way, BytesOf(std::vector<std::int32_t>(count, node + 1))));
      if (node == absent) continue;
      const auto index = static_cast<std::size_t>(node);
      CollectiveRequest request =
          AllReduce({1, 0}, DataType::kInt32, ReduceOp::kSum, buffers[index].data(), count);
      accessors[index]->Serve(request);
      REQUIRE(network.at(node).TryPost(request));
      for (std::uint32_t steps = network.Random(20); steps > 0; --steps) network.Step();
    }
    for (std::uint32_t steps = network.Random(500); steps > 0; --steps) network.Step();
    for (int node = 0; node < node_count; ++node) network.at(node).Cancel({1, 0});
    for (int step = 0; step < 2000; ++step) network.Step();
    for (int node = 0; node < node_count; ++node) {
      Completion completion[2];
      CHECK(network.at(node).Poll(completion) == (node == absent ? 0 : 1));
      const CheckingAccessor& own = *accessors[static_cast<std::size_t>(node)];
      CHECK(own.NoneHandedOver());
      CHECK((own.data() == BytesOf(std::vector<std::int32_t>(count, node + 1))));
    }
  }
}

TEST_CASE("WireCommunicator: a node that is ahead sends a bounded amount") {
  AlgorithmOptions options;
  options.chunk_bytes = 1024;
  FakeNetwork network(3, options, 1);
  std::vector<float> buffer(1 << 20, 1.0f);
  for (std::uint32_t i = 0; i < 50; ++i) {
    REQUIRE(network.at(0).TryPost(
        AllReduce({0, i}, DataType::kFloat32, ReduceOp::kSum, buffer.data(), buffer.size())));
    REQUIRE(network.at(0).TryPost(
        Broadcast({1, i}, 0, DataType::kFloat32, buffer.data(), buffer.size())));
    for (int step = 0; step < 200; ++step) network.Step();
  }
  // Of an all-reduce the initial credit, of a broadcast nothing.
  CHECK(network.at(1).Statistics().messages_early == 50 * Operation::kInitialCredit);
  CHECK(network.at(2).Statistics().messages_early == 50);  // the grants
  CHECK(network.in_transit() == 0);
}

TEST_CASE("WireCommunicator: messages of an operation that was cancelled or skipped are dropped") {
  FakeNetwork network(2, TinyChunks(), 1);
  std::vector<std::int32_t> a(500, 1);
  std::vector<std::int32_t> b(500, 2);
  // Node 0 posts 0 and 1; node 1 will only ever post 1.
  REQUIRE(
      network.at(0).TryPost(AllReduce({0, 0}, DataType::kInt32, ReduceOp::kSum, b.data(), 500)));
  for (int step = 0; step < 100; ++step) network.Step();
  CHECK(network.at(1).Statistics().messages_early > 0);
  network.at(0).Cancel({0, 0});
  REQUIRE(
      network.at(0).TryPost(AllReduce({0, 1}, DataType::kInt32, ReduceOp::kSum, a.data(), 500)));
  std::vector<std::int32_t> c(500, 3);
  REQUIRE(
      network.at(1).TryPost(AllReduce({0, 1}, DataType::kInt32, ReduceOp::kSum, c.data(), 500)));
  CHECK(network.at(1).Statistics().messages_discarded > 0);
  for (int step = 0; step < 5000; ++step) network.Step();
  CHECK((a == std::vector<std::int32_t>(500, 4)));
  CHECK((c == a));
}

TEST_CASE(
    "WireCommunicator: a message that could not be received ends what needs it, with the node") {
  FakeNetwork network(3, TinyChunks(), 1);
  REQUIRE(network.at(0).TryPost(Barrier({0, 0})));
  MessageHeader header;
  header.wire_id = 7;
  for (const std::int32_t nobody : {-1, 0, 3}) {
    header.source = nobody;
    network.at(0).OnMessageLost(header, "memory can't be registered");
    CHECK(network.at(0).health().ok());
  }
  header.source = 2;
  network.at(0).OnMessageLost(header, "memory can't be registered");
  CHECK(network.at(0).lost_node() == NodeIndex(2));
  CHECK(network.at(0).health().message() ==
        "could not receive from node 2: memory can't be registered");
  Completion completion[2];
  CHECK(network.at(0).Poll(completion) == 1);
  CHECK(completion[0].outcome == CollectiveOutcome::kPeerLost);
}

TEST_CASE("BusyCommunicators: a communicator is in there while it has operations under way") {
  FakeNetwork network(2, {}, 1);
  CHECK(network.busy().count() == 0);
  REQUIRE(network.at(0).TryPost(Barrier({0, 0})));
  REQUIRE(network.at(0).TryPost(Barrier({0, 1})));
  CHECK(network.busy().count() == 1);
  network.busy().Advance();
  CHECK(network.busy().count() == 1);  // it waits for the other node
  SECTION("until they have ended") {
    for (std::uint32_t i = 0; i < 2; ++i) REQUIRE(network.at(1).TryPost(Barrier({0, i})));
    CHECK(network.busy().count() == 2);
    while (network.in_transit() > 0) network.Step();
    network.busy().Advance();
    CHECK(network.busy().count() == 0);
    CHECK_FALSE(network.busy().HasPendingWork());
    REQUIRE(network.at(0).TryPost(Barrier({0, 2})));
    CHECK(network.busy().count() == 1);
  }
  SECTION("or it goes") {
    network.Close(0);
    CHECK(network.busy().count() == 0);
    network.busy().Advance();
  }
}

}  // namespace ringd
