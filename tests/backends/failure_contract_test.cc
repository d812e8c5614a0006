// Cancelling, aborting, losing nodes and disagreeing: for every backend.
#include <poll.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/backends/backend_world.h"

namespace ringd {
namespace {

// Shared memory is left out: UCX asks the kernel whether the other's process lives, and here it
// does.
BackendKind AnyBackend() {
  return GENERATE(BackendKind::kLoopback, BackendKind::kUcx, BackendKind::kUcxTwoStreams,
                  BackendKind::kTcp, BackendKind::kTcpTwoStreams);
}

AlgorithmOptions SmallChunks() {
  AlgorithmOptions options;
  options.chunk_bytes = 4096;
  options.small_all_reduce_bytes = 1024;
  options.small_broadcast_bytes = 1024;
  return options;
}

void CheckStillWorks(BackendWorld& world, OperationId id) {
  std::vector<std::vector<float>> buffers;
  for (int node = 0; node < world.node_count(); ++node) buffers.emplace_back(20000, 1.0f);
  for (int node = 0; node < world.node_count(); ++node) {
    REQUIRE(
        world.at(node).TryPost(AllReduce(id, DataType::kFloat32, ReduceOp::kSum,
                                         buffers[static_cast<std::size_t>(node)].data(), 20000)));
  }
  REQUIRE(world.RunUntil([&] {
    for (int node = 0; node < world.node_count(); ++node) {
      if (world.Find(node, id) == nullptr) return false;
    }
    return true;
  }));
  for (int node = 0; node < world.node_count(); ++node) {
    CHECK(world.Find(node, id)->outcome == CollectiveOutcome::kDone);
    CHECK((buffers[static_cast<std::size_t>(node)] ==
           std::vector<float>(20000, static_cast<float>(world.node_count()))));
  }
}

}  // namespace

TEST_CASE(
    "Backend: a cancelled operation completes as cancelled, and its late messages harm nobody") {
  const BackendKind kind = AnyBackend();
  const std::size_t count = GENERATE(std::size_t{10}, std::size_t{200000});
  const int steps = GENERATE(0, 1, 3, 10);
  INFO(NameOf(kind) << ", " << count << " elements, " << steps << " steps");
  BackendWorld world(kind, 3, SmallChunks());
  std::vector<std::vector<float>> buffers(3, std::vector<float>(count, 1.0f));
  // Node 2 never posts: nobody can finish.
  for (int node = 0; node < 2; ++node) {
    REQUIRE(
        world.at(node).TryPost(AllReduce({0, 0}, DataType::kFloat32, ReduceOp::kSum,
                                         buffers[static_cast<std::size_t>(node)].data(), count)));
  }
  for (int i = 0; i < steps; ++i) world.Step();
  for (int node = 0; node < 3; ++node) world.at(node).Cancel({0, 0});
  REQUIRE(world.RunUntil([&] {
    return world.Find(0, {0, 0}) != nullptr && world.Find(1, {0, 0}) != nullptr;
  }));
  CHECK(world.Find(0, {0, 0})->outcome == CollectiveOutcome::kCancelled);
  CHECK(world.Find(1, {0, 0})->outcome == CollectiveOutcome::kCancelled);
  CHECK(world.Find(2, {0, 0}) == nullptr);
  for (int node = 0; node < 3; ++node) CHECK(world.at(node).health().ok());

  // From here on nothing may write the buffers.
  const auto snapshot = buffers;
  CheckStillWorks(world, {0, 1});
  CheckStillWorks(world, {1, 0});
  CHECK((buffers == snapshot));
  for (int node = 0; node < 3; ++node) {
    world.at(node).Cancel({0, 1});  // finished: nothing to cancel
    CHECK(world.completions[static_cast<std::size_t>(node)].size() == (node < 2 ? 3u : 2u));
  }
}

TEST_CASE("Backend: abort fails what is in flight and what is posted later, once") {
  const BackendKind kind = AnyBackend();
  INFO(NameOf(kind));
  BackendWorld world(kind, 2, SmallChunks());
  std::vector<float> buffer(100000, 1.0f);
  REQUIRE(world.at(0).TryPost(
      AllReduce({0, 0}, DataType::kFloat32, ReduceOp::kSum, buffer.data(), buffer.size())));
  REQUIRE(world.at(0).TryPost(Barrier({1, 0})));
  world.Step();
  world.at(0).Abort("rank 3 was killed");
  world.at(0).Abort("another reason");
  REQUIRE(world.at(0).TryPost(Barrier({1, 1})));
  REQUIRE(world.RunUntil([&] { return world.completions[0].size() >= 3; }));
  for (int i = 0; i < 100; ++i) world.Step();
  REQUIRE(world.completions[0].size() == 3);
  for (const Completion& completion : world.completions[0]) {
    CHECK(completion.outcome == CollectiveOutcome::kAborted);
  }
  CHECK(world.at(0).health() == absl::AbortedError("rank 3 was killed"));
  CHECK(world.at(0).Statistics().operations_failed == 3);
  // The other side isn't told by the backend.
  CHECK(world.at(1).health().ok());
}

TEST_CASE("Backend: a node that goes is named to its neighbours, in flight or not") {
  const BackendKind kind = AnyBackend();
  const bool in_flight = GENERATE(false, true);
  INFO(NameOf(kind) << (in_flight ? ", in flight" : ", idle"));
  BackendWorld world(kind, 3, SmallChunks());
  CheckStillWorks(world, {0, 0});
  // Longer than the test if only one core is left.
  std::vector<std::vector<float>> buffers(3, std::vector<float>(300000, 1.0f));
  if (in_flight) {
    for (int node = 0; node < 2; ++node) {
      REQUIRE(world.at(node).TryPost(AllReduce({0, 1}, DataType::kFloat32, ReduceOp::kSum,
                                               buffers[static_cast<std::size_t>(node)].data(),
                                               300000)));
    }
    for (int i = 0; i < 10; ++i) world.Step();
  }
  world.Kill(2);
  REQUIRE(world.RunUntil([&] { return !world.at(0).health().ok() && !world.at(1).health().ok(); },
                         std::chrono::seconds(5)));
  for (int node = 0; node < 2; ++node) {
    CHECK(world.at(node).health().code() == absl::StatusCode::kUnavailable);
    CHECK(std::string(world.at(node).health().message()).find("node-2") != std::string::npos);
    CHECK(world.at(node).lost_node() == NodeIndex(2));
    if (!in_flight) continue;
    REQUIRE(world.RunUntil([&] { return world.Find(node, {0, 1}) != nullptr; }));
    CHECK(world.Find(node, {0, 1})->outcome == CollectiveOutcome::kPeerLost);
    CHECK(world.Find(node, {0, 1})->culprit == NodeIndex(2));
  }
}

TEST_CASE("Backend: the loss of one node leaves communicators without it alone") {
  const BackendKind kind = AnyBackend();
  INFO(NameOf(kind));
  BackendWorld world(kind, 3, SmallChunks());
  CheckStillWorks(world, {0, 0});
  std::vector<std::unique_ptr<Communicator>> pair;
  for (int node = 0; node < 2; ++node) {
    CommunicatorSpec spec = world.SpecOf(node, 50);
    spec.addresses.pop_back();
    auto communicator = world.transport(node).CreateCommunicator(spec);
    REQUIRE(communicator.ok());
    pair.push_back(*std::move(communicator));
  }
  world.Kill(2);
  REQUIRE(world.RunUntil([&] { return !world.at(0).health().ok() && !world.at(1).health().ok(); },
                         std::chrono::seconds(5)));
  float values[2] = {1, 2};
  for (std::size_t node = 0; node < 2; ++node) {
    CHECK(pair[node]->health().ok());
    REQUIRE(pair[node]->TryPost(
        AllReduce({0, 0}, DataType::kFloat32, ReduceOp::kSum, &values[node], 1)));
  }
  std::size_t done = 0;
  REQUIRE(world.RunUntil([&] {
    Completion completion[1];
    done += pair[0]->Poll(completion) + pair[1]->Poll(completion);
    return done == 2;
  }));
  CHECK(values[0] == 3);
  CHECK(values[1] == 3);
}

TEST_CASE("Backend: nodes that disagree about an operation find out") {
  const BackendKind kind = AnyBackend();
  INFO(NameOf(kind));
  BackendWorld world(kind, 2, SmallChunks());
  std::vector<float> a(20000, 1.0f);
  std::vector<float> b(20000, 1.0f);
  const CollectiveRequest ours =
      AllReduce({0, 0}, DataType::kFloat32, ReduceOp::kSum, a.data(), 20000);
  CollectiveRequest theirs = ours;
  theirs.buffer = reinterpret_cast<std::byte*>(b.data());
  SECTION("the operation") { theirs.op = ReduceOp::kMax; }
  SECTION("what else is said of it") { theirs.description = 1; }
  SECTION("the algorithm") { theirs.algorithm = AllReduceAlgorithm::kFlat; }
  REQUIRE(world.at(0).TryPost(ours));
  REQUIRE(world.at(1).TryPost(theirs));
  REQUIRE(world.RunUntilCompleted(1));
  CHECK(world.Find(0, {0, 0})->outcome == CollectiveOutcome::kDisagreement);
  CHECK(world.Find(0, {0, 0})->culprit == NodeIndex(1));
  CHECK(world.Find(1, {0, 0})->outcome == CollectiveOutcome::kDisagreement);
  CHECK(world.Find(1, {0, 0})->culprit == NodeIndex(0));
  CheckStillWorks(world, {0, 1});
}

TEST_CASE("Backend: communicators may end in the middle of an operation, others go on") {
  const BackendKind kind = AnyBackend();
  INFO(NameOf(kind));
  BackendWorld world(kind, 2, SmallChunks());
  CheckStillWorks(world, {0, 0});
  {
    std::vector<std::vector<float>> buffers(2, std::vector<float>(500000, 1.0f));
    std::vector<std::unique_ptr<Communicator>> pair;
    for (int node = 0; node < 2; ++node) {
      auto made = world.transport(node).CreateCommunicator(world.SpecOf(node, 9));
      REQUIRE(made.ok());
      pair.push_back(*std::move(made));
      REQUIRE(
          pair.back()->TryPost(AllReduce({0, 0}, DataType::kFloat32, ReduceOp::kSum,
                                         buffers[static_cast<std::size_t>(node)].data(), 500000)));
    }
    for (int i = 0; i < 5; ++i) world.Step();
    std::size_t ended = 0;
    for (auto& communicator : pair) communicator->Abort("the job has ended");
    REQUIRE(world.RunUntil([&] {
      Completion completion[1];
      ended += pair[0]->Poll(completion) + pair[1]->Poll(completion);
      return ended == 2;
    }));
  }
  CheckStillWorks(world, {0, 1});
}

TEST_CASE(
    "Backend: a node that is not there any more when the communicator is made counts as lost") {
  const BackendKind kind = AnyBackend();
  INFO(NameOf(kind));
  BackendWorld world(kind, 3, SmallChunks());
  world.Kill(2);
  for (int i = 0; i < 10; ++i) world.Step();
  auto made = world.transport(0).CreateCommunicator(world.SpecOf(0, 9));
  if (!made.ok()) {
    CHECK(made.status().code() == absl::StatusCode::kUnavailable);
    return;
  }
  float value = 1;
  REQUIRE((*made)->TryPost(AllReduce({0, 0}, DataType::kFloat32, ReduceOp::kSum, &value, 1)));
  Completion completion[1];
  REQUIRE(world.RunUntil([&] { return (*made)->Poll(completion) == 1; }, std::chrono::seconds(5)));
  CHECK(completion[0].outcome == CollectiveOutcome::kPeerLost);
  CHECK(completion[0].culprit == NodeIndex(2));
  CHECK((*made)->health().code() == absl::StatusCode::kUnavailable);
}

TEST_CASE("Backend: sleeping on the event descriptor misses nothing") {
  const BackendKind kind = AnyBackend();
  INFO(NameOf(kind));
  BackendWorld world(kind, 2, SmallChunks());
  for (std::uint32_t round = 0; round < 20; ++round) {
    std::vector<float> a(3000, 1.0f);
    std::vector<float> b(3000, 1.0f);
    REQUIRE(world.at(0).TryPost(
        AllReduce({0, round}, DataType::kFloat32, ReduceOp::kSum, a.data(), 3000)));
    REQUIRE(world.at(1).TryPost(
        AllReduce({0, round}, DataType::kFloat32, ReduceOp::kSum, b.data(), 3000)));
    // Progress only what says that it has work; never both by habit.
    int idle_rounds = 0;
    while (world.completions[0].size() <= round || world.completions[1].size() <= round) {
      bool any = false;
      for (int node = 0; node < 2; ++node) {
        pollfd event{world.transport(node).event_fd(), POLLIN, 0};
        const bool armed = world.transport(node).Arm();
        if (armed && ::poll(&event, 1, 0) == 0) continue;
        any = true;
        world.transport(node).Progress();
        Completion done[4];
        const std::size_t count = world.at(node).Poll(done);
        auto& list = world.completions[static_cast<std::size_t>(node)];
        list.insert(list.end(), done, done + count);
      }
      if (any) {
        idle_rounds = 0;
        continue;
      }
      // Bytes may be on their way through the kernel.
      REQUIRE(++idle_rounds < 1000);
      ::poll(nullptr, 0, 1);
    }
  }
}

}  // namespace ringd
