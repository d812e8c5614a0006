// The TCP backend as its users and its neighbours see it, the ill-behaved ones too.
#include "backends/tcp/tcp_transport.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "proto/base/clock.h"
#include "tests/backends/backend_world.h"
#include "tests/backends/tcp/loopback_sockets.h"
#include "tests/backends/tcp/raw_peer.h"
#include "tests/backends/two_nodes.h"
#include "tests/count_descriptors.h"

namespace ringd {
namespace {

using Catch::Matchers::Contains;
using std::chrono::seconds;

constexpr std::uint64_t kWireId = 99;

// Node 0's end of a second job, whose node 1 is a RawPeer.
struct Victim {
  explicit Victim(BackendWorld& nodes, int receive_buffer = 0) : world(nodes) {
    auto made = world.transport(0).CreateCommunicator(world.SpecOf(0, kWireId));
    REQUIRE(made.ok());
    communicator = *std::move(made);
    const FrameScope scope{kWireId, 0, 1};
    for (std::uint32_t stream = 0; stream < 2; ++stream) {
      peers.push_back(std::make_unique<RawPeer>(world.addresses[0], scope, stream, receive_buffer));
    }
    REQUIRE(world.RunUntil([&] { return peers[0]->Welcomed() && peers[1]->Welcomed(); }));
  }

  bool Fails() {
    return world.RunUntil([&] { return !communicator->health().ok(); });
  }
  std::string Message() const { return std::string(communicator->health().message()); }

  BackendWorld& world;
  std::unique_ptr<Communicator> communicator;
  std::vector<std::unique_ptr<RawPeer>> peers;  // by stream
};

TEST_CASE("TCP: who sends rubbish is named to its job, and other jobs go on") {
  BackendWorld world(BackendKind::kTcp, 2);
  AddOnBothNodes(world, 0);
  Victim victim(world);
  RawPeer& peer = *victim.peers[GENERATE(0u, 1u)];
  FrameHead head = peer.Head(MessageType::kData);
  SECTION("no magic") { head.message.magic = 0x47455420; }
  SECTION("4 GiB") { head.payload_bytes = 0xffffffff; }
  SECTION("another job's message") { head.message.wire_id = 1; }
  SECTION("another node's message") { head.message.source = 0; }
  SECTION("for another node") { head.message.destination = 7; }
  REQUIRE(victim.communicator->TryPost(Barrier({0, 0})));
  peer.Send(head);
  REQUIRE(victim.Fails());
  CHECK(absl::IsInternal(victim.communicator->health()));
  CHECK_THAT(victim.Message(), Contains("node-1 sends"));
  CHECK(victim.communicator->lost_node() == NodeIndex(-1));
  Completion completion[1];
  REQUIRE(victim.communicator->Poll(completion) == 1);
  CHECK(completion[0].outcome == CollectiveOutcome::kDisagreement);
  CHECK(completion[0].culprit == NodeIndex(1));
  CHECK(world.RunUntil([&] { return victim.peers[0]->HasEnded() && victim.peers[1]->HasEnded(); }));
  AddOnBothNodes(world, 1);
  CHECK(world.at(0).health().ok());
}

TEST_CASE("TCP: a connection that ends is the loss of its node, named with its address") {
  BackendWorld world(BackendKind::kTcp, 2);
  Victim victim(world);
  SECTION("without a word") { victim.peers[GENERATE(0u, 1u)]->Hang(); }
  SECTION("after a goodbye, since only a ringd that has gone ends connections of others") {
    victim.peers[0]->SayGoodbye();
    for (int i = 0; i < 1000; ++i) world.Step();
    CHECK(victim.communicator->health().ok());
    victim.peers[0]->Hang();
  }
  REQUIRE(victim.Fails());
  CHECK(absl::IsUnavailable(victim.communicator->health()));
  CHECK_THAT(victim.Message(), Contains("node-1: 127.0.0.1:"));
  CHECK(victim.communicator->lost_node() == NodeIndex(1));
  AddOnBothNodes(world, 0);
}

TEST_CASE("TCP: what a node that has left drops unused is not its loss") {
  BackendWorld world(BackendKind::kTcp, 2);
  Victim victim(world);
  victim.peers[0]->SayGoodbye();
  for (int i = 0; i < 1000; ++i) world.Step();
  victim.peers[1]->Hang();
  for (int i = 0; i < 1000; ++i) world.Step();
  CHECK(victim.communicator->health().ok());
  victim.peers[0]->Hang();
  CHECK(victim.Fails());
}

TEST_CASE(
    "TCP: a communicator that closes says goodbye, and its connections stay until the other's "
    "closes") {
  BackendWorld world(BackendKind::kTcp, 2);
  Victim victim(world);
  victim.communicator.reset();
  for (const auto& peer : victim.peers) {
    std::vector<std::byte> got;
    REQUIRE(world.RunUntil([&] {
      const std::vector<std::byte> more = peer->ReadAll();
      got.insert(got.end(), more.begin(), more.end());
      return got.size() >= sizeof(FrameHead);
    }));
    const auto frames = FramesOf(got);
    REQUIRE(frames.has_value());
    REQUIRE(frames->size() == 1);
    CHECK(frames->front().head.kind == FrameKind::kGoodbye);
  }
  for (int i = 0; i < 1000; ++i) world.Step();
  CHECK_FALSE(victim.peers[0]->HasEnded());
  // What comes on the way is dropped.
  victim.peers[0]->Send(victim.peers[0]->Head(MessageType::kGrant, 5));
  for (const auto& peer : victim.peers) {
    peer->SayGoodbye();
    CHECK(world.RunUntil([&] { return peer->HasEnded(); }));
  }
}

TEST_CASE("TCP: a communicator whose peer has closed is not lost, and keeps no payload") {
  BackendWorld world(BackendKind::kTcp, 2);
  std::vector<float> buffer(4'000'000, 1.0F);
  auto other = world.transport(0).CreateCommunicator(world.SpecOf(0, 5));
  auto closes = world.transport(1).CreateCommunicator(world.SpecOf(1, 5));
  REQUIRE(other.ok());
  REQUIRE(closes.ok());
  REQUIRE((*other)->TryPost(
      AllReduce({0, 0}, DataType::kFloat32, ReduceOp::kSum, buffer.data(), buffer.size())));
  for (int i = 0; i < 200; ++i) world.Step();
  closes->reset();
  for (int i = 0; i < 2000; ++i) world.Step();
  CHECK((*other)->health().ok());
  Completion completion[1];
  CHECK((*other)->Poll(completion) == 0);
  (*other)->Cancel({0, 0});
  CHECK((*other)->Poll(completion) == 1);
  AddOnBothNodes(world, 0);
}

// Lets `victim` send all it wants to, to a peer that reads nothing.
CollectiveRequest SendMuch(Victim& victim, std::vector<float>& buffer) {
  const CollectiveRequest request =
      AllReduce({0, 0}, DataType::kFloat32, ReduceOp::kSum, buffer.data(), buffer.size());
  REQUIRE(victim.communicator->TryPost(request));
  FrameHead grant = victim.peers[0]->Head(MessageType::kGrant, 1'000'000);
  grant.message.operation = request.id;
  grant.message.fingerprint = Fingerprint(request);
  victim.peers[0]->Send(grant);
  // Its socket is full when nothing more leaves.
  std::uint64_t before = UINT64_MAX;
  int still = 0;
  REQUIRE(victim.world.RunUntil([&] {
    const auto neighbours = victim.communicator->Statistics().neighbours;
    const std::uint64_t sent = neighbours.empty() ? 0 : neighbours[0].messages_sent;
    still = sent == before ? still + 1 : 0;
    before = sent;
    return still > 200 && sent > 4;
  }));
  return request;
}

TEST_CASE("TCP: a node that stops reading holds up nobody but its own job") {
  BackendWorld world(BackendKind::kTcp, 2);
  AddOnBothNodes(world, 0);
  std::vector<float> buffer(8 << 20, 1.0F);
  Victim victim(world, 64 * 1024);
  SendMuch(victim, buffer);
  const Clock::time_point begun = Clock::now();
  // 30 s if each of them waited for the other job until that is set aside.
  for (std::uint32_t i = 1; i < 150; ++i) AddOnBothNodes(world, i);
  CHECK(Clock::now() - begun < seconds(20));
  CHECK(victim.communicator->health().ok());
}

TEST_CASE("TCP: what is cancelled or aborted completes at once, and its buffer is free") {
  BackendWorld world(BackendKind::kTcp, 2);
  std::vector<float> buffer(8 << 20, 1.0F);
  Victim victim(world, 64 * 1024);
  const CollectiveRequest request = SendMuch(victim, buffer);
  Completion completion[1];
  REQUIRE(victim.communicator->Poll(completion) == 0);
  const bool cancel = GENERATE(true, false);
  if (cancel) {
    victim.communicator->Cancel(request.id);
  } else {
    victim.communicator->Abort("the job has ended");
  }
  REQUIRE(victim.communicator->Poll(completion) == 1);
  std::fill(buffer.begin(), buffer.end(), -1.0F);
  // The frame that was begun ends as it began.
  std::vector<std::byte> got;
  int idle = 0;
  REQUIRE(world.RunUntil([&] {
    const std::vector<std::byte> more = victim.peers[1]->ReadAll();
    got.insert(got.end(), more.begin(), more.end());
    idle = more.empty() ? idle + 1 : 0;
    return idle > 2000;
  }));
  const auto frames = FramesOf(got);
  REQUIRE(frames.has_value());
  REQUIRE(frames->size() > 1);
  std::size_t wrong = 0;
  for (const RawFrame& frame : *frames) {
    CHECK(frame.payload.size() == frame.head.payload_bytes);
    for (const float value : ValuesOf<float>(frame.payload)) wrong += value == 1.0F ? 0 : 1;
  }
  CHECK(wrong == 0);
}

TEST_CASE("TCP: closing a communicator does not wait for a node that does not read") {
  BackendWorld world(BackendKind::kTcp, 2);
  std::vector<float> buffer(8 << 20, 1.0F);
  Victim victim(world, 64 * 1024);
  SendMuch(victim, buffer);
  const Clock::time_point begun = Clock::now();
  victim.communicator.reset();
  CHECK(Clock::now() - begun < seconds(10));
  AddOnBothNodes(world, 0);
}

TEST_CASE("TCP: what has come is read before more is sent, but where others wait for the way") {
  BackendWorld world(BackendKind::kTcp, 2);
  const bool is_shared = GENERATE(false, true);
  if (!is_shared) world.communicators[0].reset();
  Victim victim(world);
  const auto received = [&] {
    const auto neighbours = victim.communicator->Statistics().neighbours;
    return neighbours.empty() ? 0 : neighbours[0].messages_received;
  };
  // Of an operation that is not posted: they are kept for it.
  const std::vector<std::byte> payload(kMaxPayloadBytes);
  const RawPeer& peer = *victim.peers[1];
  constexpr std::uint32_t kCount = 6;
  for (std::uint32_t i = 0; i < kCount; ++i) {
    peer.Send(peer.Head(MessageType::kData, i, static_cast<std::uint32_t>(payload.size())),
              payload);
  }
  REQUIRE(peer.AllHasArrived());
  world.transport(0).Progress();
  CHECK(received() == (is_shared ? 2 : kCount));
  CHECK(world.RunUntil([&] { return received() == kCount; }));
  CHECK(victim.communicator->health().ok());
}

TEST_CASE("TCP: a node that can't be reached is named with its address") {
  BackendWorld world(BackendKind::kTcp, 2);
  CommunicatorSpec spec = world.SpecOf(GENERATE(0, 1), kWireId);
  // Nobody listens there, and the node of the higher index does not wait for the other for ever.
  const std::size_t other = spec.self == NodeIndex(0) ? 1 : 0;
  spec.addresses[other] = "127.0.0.1:1";
  auto made = world.transport(spec.self.value()).CreateCommunicator(spec);
  REQUIRE(made.ok());
  REQUIRE(world.RunUntil([&] { return !(*made)->health().ok(); }));
  CHECK(absl::IsUnavailable((*made)->health()));
  CHECK((*made)->lost_node() == NodeIndex(static_cast<std::int32_t>(other)));
  CHECK((*made)->lost_node_is_unreached());
  CHECK_THAT(std::string((*made)->health().message()),
             Contains("no connection for data to " + spec.node_names[other]) &&
                 Contains("127.0.0.1:1: Connection refused"));
}

TEST_CASE(
    "TCP: nodes that are no neighbours connect when they need each other, both at once if need "
    "be") {
  BackendWorld world(GENERATE(BackendKind::kTcp, BackendKind::kTcpTwoStreams), 4);
  std::vector<std::vector<float>> buffers(4, std::vector<float>(1000, 1.0F));
  for (std::uint32_t i = 0; i < 20; ++i) {
    for (int node = 0; node < 4; ++node) {
      CollectiveRequest request = AllReduce({0, i}, DataType::kFloat32, ReduceOp::kMax,
                                            buffers[static_cast<std::size_t>(node)].data(), 1000);
      // Between nodes that are two apart, all at once.
      request.algorithm = AllReduceAlgorithm::kDoubling;
      REQUIRE(world.at(node).TryPost(request));
    }
    REQUIRE(world.RunUntilCompleted(i + 1));
  }
  for (int node = 0; node < 4; ++node) {
    CHECK(world.at(node).health().ok());
    CHECK(world.at(node).Statistics().neighbours.size() == 2);
  }
}

// Both nodes' ends of more communicators, which connect when something is first sent.
struct Idle {
  Idle(BackendWorld& nodes, std::uint64_t count) : world(nodes) {
    for (std::uint64_t i = 0; i < 2 * count; ++i) {
      const int node = static_cast<int>(i % 2);
      CommunicatorSpec spec = world.SpecOf(node, 1000 + i / 2);
      spec.connects_at_once = false;
      auto made = world.transport(node).CreateCommunicator(spec);
      REQUIRE(made.ok());
      ends.push_back(*std::move(made));
    }
  }
  bool RunUntilDone(std::size_t end) {
    Completion done[1];
    return world.RunUntil([&] { return ends[end]->Poll(done) == 1; }) &&
           done[0].outcome == CollectiveOutcome::kDone;
  }

  BackendWorld& world;
  std::vector<std::unique_ptr<Communicator>> ends;  // node 0's, node 1's, node 0's, ...
};

TEST_CASE("TCP: communicators that connect when needed have no connections while they idle") {
  BackendWorld world(BackendKind::kTcp, 2);
  AddOnBothNodes(world, 0);
  const std::size_t before = CountDescriptors();
  Idle idle(world, 50);
  for (int i = 0; i < 2000; ++i) world.Step();
  CHECK(CountDescriptors() == before);
  float values[2] = {1, 2};
  for (std::size_t node : {0, 1}) {
    REQUIRE(idle.ends[node]->TryPost(
        AllReduce({0, 0}, DataType::kFloat32, ReduceOp::kSum, &values[node], 1)));
  }
  REQUIRE(idle.RunUntilDone(0));
  REQUIRE(idle.RunUntilDone(1));
  CHECK((values[0] == 3 && values[1] == 3));
  // One set of two, though both needed it at once; both ends are here.
  CHECK(CountDescriptors() == before + 4);
}

TEST_CASE("TCP: a node that needs a line and is not dialled dials itself, soon") {
  BackendWorld world(BackendKind::kTcp, 2);
  AddOnBothNodes(world, 0);
  Idle idle(world, 1);
  const std::size_t before = CountDescriptors();
  float values[2] = {1, 2};
  const auto post = [&](std::size_t node) {
    REQUIRE(idle.ends[node]->TryPost(
        AllReduce({0, 0}, DataType::kFloat32, ReduceOp::kSum, &values[node], 1)));
  };
  // Only node 1 has something to send, and node 0 does not know of it.
  post(1);
  REQUIRE(world.RunUntil([&] {
    const auto neighbours = idle.ends[1]->Statistics().neighbours;
    return neighbours.size() == 1 && neighbours[0].line.connections == 2;
  }));
  // Node 0 takes its ends.
  REQUIRE(world.RunUntil([&] {
    const auto neighbours = idle.ends[0]->Statistics().neighbours;
    return neighbours.size() == 1 && neighbours[0].line.connections == 2;
  }));
  post(0);
  REQUIRE(idle.RunUntilDone(0));
  REQUIRE(idle.RunUntilDone(1));
  CHECK((values[0] == 3 && values[1] == 3));
  CHECK(CountDescriptors() == before + 4);
}

TEST_CASE("TCP: options that make no sense are refused") {
  TransportOptions options;
  options.streams_per_neighbour = GENERATE(-1, 65);
  CHECK(absl::IsInvalidArgument(
      CreateTcpTransport(options, std::make_unique<LoopbackSockets>()).status()));
  options = {.congestion_control = "nosuch"};
  CHECK(absl::IsInvalidArgument(
      CreateTcpTransport(options, std::make_unique<LoopbackSockets>()).status()));
}

}  // namespace
}  // namespace ringd
