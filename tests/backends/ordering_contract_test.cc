// Many operations at once, nodes that are ahead, and the hooks of accessors: for every backend.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "tests/backends/backend_world.h"

namespace ringd {
namespace {

BackendKind AnyBackend() {
  return GENERATE(BackendKind::kLoopback, BackendKind::kUcx, BackendKind::kUcxTwoStreams,
                  BackendKind::kUcxSharedMemory, BackendKind::kTcp, BackendKind::kTcpTwoStreams);
}

AlgorithmOptions SmallChunks() {
  AlgorithmOptions options;
  options.chunk_bytes = 4096;
  options.small_all_reduce_bytes = 1024;
  options.small_broadcast_bytes = 1024;
  return options;
}

// Operations of mixed kinds and sizes, each in a channel of its own, with a buffer for each node.
class Mixture {
 public:
  Mixture(int node_count, int operation_count, unsigned seed) : node_count_(node_count) {
    std::mt19937 random(seed);
    for (int i = 0; i < operation_count; ++i) {
      kinds_.push_back(static_cast<int>(random() % 8));
      const std::size_t count = random() % 4 == 0 ? random() % 60000 : random() % 300;
      counts_.push_back(count);
      roots_.push_back(static_cast<int>(random() % static_cast<unsigned>(node_count)));
      buffers_.emplace_back();
      for (int node = 0; node < node_count; ++node) {
        buffers_.back().emplace_back(count + 1, static_cast<float>(node + i % 10 + 1));
      }
    }
  }

  int size() const { return static_cast<int>(kinds_.size()); }

  CollectiveRequest Request(int node, int i, std::uint32_t sequence) {
    const auto index = static_cast<std::size_t>(i);
    const OperationId id{static_cast<std::uint32_t>(i), sequence};
    float* const buffer = buffers_[index][static_cast<std::size_t>(node)].data();
    if (kinds_[index] == 0) return Barrier(id);
    if (kinds_[index] == 1) {
      return Broadcast(id, roots_[index], DataType::kFloat32, buffer, counts_[index]);
    }
    return AllReduce(id, DataType::kFloat32, ReduceOp::kMax, buffer, counts_[index]);
  }

  void CheckResults() const {
    for (int i = 0; i < size(); ++i) {
      const auto index = static_cast<std::size_t>(i);
      if (kinds_[index] == 0) continue;
      const int from = kinds_[index] == 1 ? roots_[index] : node_count_ - 1;
      const auto expected = static_cast<float>(from + i % 10 + 1);
      for (int node = 0; node < node_count_; ++node) {
        const auto& buffer = buffers_[index][static_cast<std::size_t>(node)];
        const auto wrong = std::count_if(buffer.begin(), buffer.end() - 1,
                                         [&](float value) { return value != expected; });
        INFO("operation " << i << ", node " << node << ", " << counts_[index] << " elements");
        CHECK(wrong == 0);
        CHECK(buffer.back() == static_cast<float>(node + i % 10 + 1));  // behind the end
      }
    }
  }

 private:
  int node_count_;
  std::vector<int> kinds_;
  std::vector<std::size_t> counts_;
  std::vector<int> roots_;
  std::vector<std::vector<std::vector<float>>> buffers_;  // by operation, by node
};

}  // namespace

TEST_CASE("Backend: operations that every node starts in another order all end right") {
  const BackendKind kind = AnyBackend();
  const unsigned seed = GENERATE(1u, 2u, 3u);
  const int node_count = GENERATE(2, 3, 5);
  INFO(NameOf(kind) << ", " << node_count << " nodes, seed " << seed);
  BackendWorld world(kind, node_count, SmallChunks());
  Mixture mixture(node_count, 100, seed);
  std::mt19937 random(seed);
  std::vector<std::vector<int>> orders;
  for (int node = 0; node < node_count; ++node) {
    orders.emplace_back(100);
    std::iota(orders.back().begin(), orders.back().end(), 0);
    std::shuffle(orders.back().begin(), orders.back().end(), random);
  }
  for (int i = 0; i < 100; ++i) {
    for (int node = 0; node < node_count; ++node) {
      const int operation = orders[static_cast<std::size_t>(node)][static_cast<std::size_t>(i)];
      REQUIRE(world.at(node).TryPost(mixture.Request(node, operation, 0)));
      if (random() % 3 == 0) world.Step();
    }
  }
  REQUIRE(world.RunUntilCompleted(100));
  for (const auto& completions : world.completions) {
    for (const Completion& completion : completions) {
      CHECK(completion.outcome == CollectiveOutcome::kDone);
    }
  }
  mixture.CheckResults();
}

TEST_CASE("Backend: a node that is ahead waits for the others and loses nothing") {
  const BackendKind kind = AnyBackend();
  const int node_count = GENERATE(2, 4);
  const int late = GENERATE(0, 1);
  INFO(NameOf(kind) << ", " << node_count << " nodes, late " << late);
  BackendWorld world(kind, node_count, SmallChunks());
  Mixture mixture(node_count, 60, 7);
  for (int i = 0; i < mixture.size(); ++i) {
    for (int node = 0; node < node_count; ++node) {
      if (node != late) REQUIRE(world.at(node).TryPost(mixture.Request(node, i, 0)));
    }
    for (int step = 0; step < 20; ++step) world.Step();
  }
  for (int i = 0; i < mixture.size(); ++i) {
    REQUIRE(world.at(late).TryPost(mixture.Request(late, i, 0)));
  }
  REQUIRE(world.RunUntilCompleted(60));
  mixture.CheckResults();
}

TEST_CASE("Backend: messages that come before the communicator is made wait for it") {
  const BackendKind kind = AnyBackend();
  INFO(NameOf(kind));
  BackendWorld world(kind, 2, SmallChunks());
  auto first = world.transport(0).CreateCommunicator(world.SpecOf(0, 99));
  REQUIRE(first.ok());
  std::vector<float> a(5000, 1.0f);
  std::vector<float> b(5000, 2.0f);
  REQUIRE((*first)->TryPost(AllReduce({0, 0}, DataType::kFloat32, ReduceOp::kSum, a.data(), 5000)));
  for (int i = 0; i < 500; ++i) world.Step();
  auto second = world.transport(1).CreateCommunicator(world.SpecOf(1, 99));
  REQUIRE(second.ok());
  REQUIRE(
      (*second)->TryPost(AllReduce({0, 0}, DataType::kFloat32, ReduceOp::kSum, b.data(), 5000)));
  int done = 0;
  REQUIRE(world.RunUntil([&] {
    Completion completion[1];
    done += static_cast<int>((*first)->Poll(completion) + (*second)->Poll(completion));
    return done == 2;
  }));
  CHECK((a == std::vector<float>(5000, 3.0f)));
  CHECK((b == a));
}

TEST_CASE(
    "Backend: a communicator of the same id and node is refused, other communicators live side by "
    "side") {
  const BackendKind kind = AnyBackend();
  INFO(NameOf(kind));
  BackendWorld world(kind, 2);
  CHECK(world.transport(0).CreateCommunicator(world.SpecOf(0, 1)).status().code() ==
        absl::StatusCode::kAlreadyExists);
  CommunicatorSpec wrong = world.SpecOf(0, 2);
  wrong.self = NodeIndex(2);
  CHECK(world.transport(0).CreateCommunicator(wrong).status().code() ==
        absl::StatusCode::kInvalidArgument);
  wrong = world.SpecOf(0, 2);
  wrong.addresses[1] = "nonsense";
  CHECK(world.transport(0).CreateCommunicator(wrong).status().code() ==
        absl::StatusCode::kInvalidArgument);

  // The same operation id in two communicators: never mixed up.
  auto other0 = world.transport(0).CreateCommunicator(world.SpecOf(0, 2));
  auto other1 = world.transport(1).CreateCommunicator(world.SpecOf(1, 2));
  REQUIRE(other0.ok());
  REQUIRE(other1.ok());
  float values[4] = {1, 2, 10, 20};
  REQUIRE(
      world.at(0).TryPost(AllReduce({0, 0}, DataType::kFloat32, ReduceOp::kSum, &values[0], 1)));
  REQUIRE((*other1)->TryPost(AllReduce({0, 0}, DataType::kFloat32, ReduceOp::kSum, &values[3], 1)));
  REQUIRE((*other0)->TryPost(AllReduce({0, 0}, DataType::kFloat32, ReduceOp::kSum, &values[2], 1)));
  REQUIRE(
      world.at(1).TryPost(AllReduce({0, 0}, DataType::kFloat32, ReduceOp::kSum, &values[1], 1)));
  int done = 0;
  REQUIRE(world.RunUntil([&] {
    Completion completion[1];
    done += static_cast<int>((*other0)->Poll(completion) + (*other1)->Poll(completion));
    return done == 2 && !world.completions[0].empty() && !world.completions[1].empty();
  }));
  CHECK(values[0] == 3);
  CHECK(values[1] == 3);
  CHECK(values[2] == 30);
  CHECK(values[3] == 30);
}

TEST_CASE(
    "Backend: when too many operations are in flight posting is refused, and works again later") {
  const BackendKind kind = AnyBackend();
  INFO(NameOf(kind));
  BackendWorld world(kind, 2);
  std::uint32_t posted = 0;
  while (posted < 100'000 && world.at(0).TryPost(Barrier({0, posted}))) ++posted;
  REQUIRE(posted >= 16);
  REQUIRE(posted < 100'000);
  std::uint32_t answered = 0;
  std::uint32_t again = posted;
  REQUIRE(world.RunUntil([&] {
    while (answered < 2 * posted && world.at(1).TryPost(Barrier({0, answered}))) ++answered;
    while (again < 2 * posted && world.at(0).TryPost(Barrier({0, again}))) ++again;
    return world.completions[0].size() == 2 * posted && world.completions[1].size() == 2 * posted;
  }));
}

TEST_CASE("Backend: every input byte is taken from the accessor once, every result byte given") {
  const BackendKind kind = AnyBackend();
  const int node_count = GENERATE(1, 2, 3, 4);
  // Flat or by recursive doubling, by recursive doubling, by the ring.
  const std::size_t count = GENERATE(std::size_t{1}, std::size_t{200}, std::size_t{50001});
  const int refusals = GENERATE(0, 40);
  const auto way = GENERATE(CheckingAccessor::Way::kInPlace, CheckingAccessor::Way::kPacked);
  INFO(NameOf(kind) << ", " << node_count << " nodes, " << count << " elements, " << refusals);
  AlgorithmOptions options = SmallChunks();
  options.flat_all_reduce_bytes = 512;
  BackendWorld world(kind, node_count, options);
  std::vector<std::vector<float>> buffers;
  std::vector<std::unique_ptr<CheckingAccessor>> accessors;
  for (int node = 0; node < node_count; ++node) {
    buffers.emplace_back(count, -1000.0f);  // what no sum may contain
    // The last node is late.
    accessors.push_back(std::make_unique<CheckingAccessor>(
        way, BytesOf(std::vector<float>(count, static_cast<float>(node + 1))), Scaling{0.25, 2},
        node == node_count - 1 ? refusals : 0));
  }
  for (int node = 0; node < node_count; ++node) {
    const auto index = static_cast<std::size_t>(node);
    CollectiveRequest request =
        AllReduce({0, 0}, DataType::kFloat32, ReduceOp::kAverage, buffers[index].data(), count);
    accessors[index]->Serve(request);
    REQUIRE(world.at(node).TryPost(request));
  }
  REQUIRE(world.RunUntilCompleted(1));
  const float sum = static_cast<float>(node_count * (node_count + 1)) / 2;
  for (int node = 0; node < node_count; ++node) {
    const CheckingAccessor& own = *accessors[static_cast<std::size_t>(node)];
    CHECK(own.violation() == "");
    CHECK(own.AllTakenOnce());
    CHECK(own.AllHandedOverOnce());
    CHECK((own.data() == BytesOf(std::vector<float>(count, sum / 8))));
  }
  CHECK(accessors.back()->asked() > refusals);
}

TEST_CASE("Backend: a broadcast takes the input of the root alone, and gives the result to all") {
  const BackendKind kind = AnyBackend();
  INFO(NameOf(kind));
  const std::size_t count = GENERATE(std::size_t{10}, std::size_t{20000});
  const auto way = GENERATE(CheckingAccessor::Way::kInPlace, CheckingAccessor::Way::kPacked);
  const int node_count = GENERATE(2, 3, 5);
  BackendWorld world(kind, node_count, SmallChunks());
  std::vector<std::vector<float>> buffers;
  std::vector<std::unique_ptr<CheckingAccessor>> accessors;
  for (int node = 0; node < node_count; ++node) {
    buffers.emplace_back(count, -1.0f);
    accessors.push_back(std::make_unique<CheckingAccessor>(
        way, BytesOf(std::vector<float>(count, static_cast<float>(node + 4))), Scaling{0.5, 1}));
    CollectiveRequest request =
        Broadcast({0, 0}, 1, DataType::kFloat32, buffers.back().data(), count);
    accessors.back()->Serve(request);
    REQUIRE(world.at(node).TryPost(request));
  }
  REQUIRE(world.RunUntilCompleted(1));
  for (std::size_t node = 0; node < accessors.size(); ++node) {
    CHECK((accessors[node]->data() == BytesOf(std::vector<float>(count, 5.0f))));
    CHECK(accessors[node]->AllHandedOverOnce());
    CHECK(accessors[node]->violation() == "");
    CHECK((node == 1 ? accessors[node]->AllTakenOnce() : accessors[node]->NoneTaken()));
  }
}

std::string TransportsOf(BackendKind kind) {
  if (kind == BackendKind::kLoopback) return "loopback";
  return kind == BackendKind::kUcxSharedMemory ? "sysv/memory" : "tcp/lo";
}

TEST_CASE("Backend: statistics count operations, bytes and neighbours") {
  const BackendKind kind = AnyBackend();
  INFO(NameOf(kind));
  BackendWorld world(kind, 3, SmallChunks());
  std::vector<std::vector<float>> buffers(3, std::vector<float>(30000, 1.0f));
  for (int node = 0; node < 3; ++node) {
    REQUIRE(
        world.at(node).TryPost(AllReduce({0, 0}, DataType::kFloat32, ReduceOp::kSum,
                                         buffers[static_cast<std::size_t>(node)].data(), 30000)));
  }
  REQUIRE(world.RunUntilCompleted(1));
  for (int node = 0; node < 3; ++node) {
    const CommunicatorStatistics statistics = world.at(node).Statistics();
    CHECK(statistics.operations_posted == 1);
    CHECK(statistics.operations_done == 1);
    CHECK(statistics.operations_failed == 0);
    CHECK(statistics.bytes_reduced == 120000);
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
    for (const NeighbourStatistics& neighbour : statistics.neighbours) {
      CHECK(neighbour.node.value() != node);
      CHECK(neighbour.line.transports == TransportsOf(kind));
      sent += neighbour.bytes_sent;
      received += neighbour.bytes_received;
    }
    if (kind != BackendKind::kLoopback) {
      // 2 (N-1) / N of the buffer each way, blocks rounded to cache lines.
      CHECK(sent >= 160000 - 256);
      CHECK(sent <= 160000 + 256);
      CHECK(received >= 160000 - 256);
    }
    CHECK(received > 0);
  }
}

}  // namespace ringd
