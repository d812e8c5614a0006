#include "daemon/supervisor/node_network.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "daemon/peers/expected_jobs.h"
#include "daemon/peers/socket_peer_network.h"
#include "tests/count_descriptors.h"
#include "tests/daemon/door/door_fixture.h"
#include "tests/daemon/engine_process/joined_engine.h"
#include "tests/daemon/engine_process/wire_helpers.h"
#include "tests/daemon/peers/recorded_events.h"

namespace ringd {
namespace {

using Catch::Contains;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uid_t kUser = 1001;

DoorKey ControlKey(const std::string& job, const std::string& secret = "secret") {
  return KeyForControl(JobKey("", job, secret, kUser));
}

// An engine with the control streams of its job, at both ends of a job's.
struct ControlEngine {
  explicit ControlEngine(NodeNetwork* node, const std::string& job = "job", uid_t user = kUser)
      : job_id(job),
        engine(node, user, job),
        peers(*SocketPeerNetwork::Create(engine.remote().control(), {})) {
    peers->SetEvents(&events);
  }
  ~ControlEngine() { peers->Shutdown(Clock::now() + seconds(3)); }

  ExpectationId Expect(const std::string& secret = "secret", bool one_node_only = false) {
    // User and job by its own word: it has none.
    const ExpectationId id =
        peers->Expect({"nobody's", 4711, ControlKey(job_id, secret), true, one_node_only});
    engine.objections();  // has arrived
    return id;
  }
  StreamId Connect(const std::string& address, Clock::duration patience = seconds(20),
                   const std::string& secret = "secret") {
    return peers->ConnectToCoordinator(
        {address, "nobody's", 4711, ControlKey(job_id, secret), true}, Clock::now() + patience);
  }
  bool AwaitEnd(StreamId stream) {
    return events.WaitFor(
        [&](const auto& records) {
          const auto found = records.find(stream);
          return found != records.end() && found->second.disconnected > 0;
        },
        seconds(30));
  }
  bool AwaitNode(std::size_t count = 1) {
    return events.WaitFor([&](const auto& records) { return records.size() >= count; },
                          seconds(30));
  }

  const std::string job_id;
  RecordedEvents events;
  JoinedEngine engine;
  std::unique_ptr<SocketPeerNetwork> peers;
};

v1::NodeMessage Numbered(int number) {
  v1::NodeMessage message;
  message.mutable_failure()->set_code(number);
  return message;
}

}  // namespace

TEST_CASE("NodeNetwork: control streams of several jobs between two nodes reach their engines") {
  JoinedNode a("node-a");
  JoinedNode b("node-b");
  ControlEngine first(a.network.get(), "first");
  ControlEngine second(a.network.get(), "second");
  ControlEngine of_first(b.network.get(), "first");
  ControlEngine of_second(b.network.get(), "second");
  const StreamId early = of_second.Connect(a.door->address());  // before its job is there
  const ExpectationId job = first.Expect();
  const StreamId stream = of_first.Connect(a.door->address());
  REQUIRE(first.AwaitNode());
  CHECK(second.events.All().empty());
  second.Expect();
  REQUIRE(second.AwaitNode());
  CHECK(first.events.All().size() == 1);
  const auto [accepted, record] = *first.events.All().begin();
  CHECK(record.job == job);
  CHECK_THAT(record.from, Contains("node-b at 127.0.0.1"));

  of_first.peers->Send(stream, Numbered(7));
  of_second.peers->Send(early, Numbered(8));
  const auto heard = [](int number) {
    return [number](const auto& records) {
      const auto& messages = records.begin()->second.from_node;
      return messages.size() == 1 && messages[0].failure().code() == number;
    };
  };
  CHECK(first.events.WaitFor(heard(7)));
  CHECK(second.events.WaitFor(heard(8)));
  first.peers->Close(accepted, absl::AbortedError("it is over"));
  REQUIRE(of_first.AwaitEnd(stream));
  CHECK(of_first.events.Get(stream).why == absl::AbortedError("it is over"));
  // Whose place is free again, and what is dialled no more.
  CHECK(Within([&] { return first.events.Get(accepted).disconnected > 0; }));
  for (ControlEngine* engine : {&first, &second, &of_first, &of_second}) {
    CHECK(engine->engine.objections().empty());
  }
}

TEST_CASE("NodeNetwork: a node with another key is refused, and both engines hear of it") {
  JoinedNode a("node-a");
  JoinedNode b("node-b");
  ControlEngine coordinator(a.network.get());
  const ExpectationId job = coordinator.Expect();
  ControlEngine node(b.network.get());
  const StreamId stream = node.Connect(a.door->address(), seconds(20), "another");
  REQUIRE(node.AwaitEnd(stream));
  CHECK(absl::IsUnauthenticated(node.events.Get(stream).why));
  REQUIRE(Within([&] { return !coordinator.events.refused().empty(); }));
  const auto [refused_at, refused] = coordinator.events.refused()[0];
  CHECK(refused_at == job);
  CHECK(refused.node_name == "node-b");
  CHECK(refused.uid == kUser);  // the engine's, whatever it says
}

TEST_CASE("NodeNetwork: what leads nowhere is told as it was without an engine's process") {
  JoinedNode a("node-a");
  ControlEngine engine(a.network.get());
  SECTION("the own door") {
    const StreamId stream = engine.Connect(a.door->address());
    REQUIRE(engine.AwaitEnd(stream));
    CHECK(engine.events.Get(stream).is_here);
  }
  SECTION("no address") {
    const StreamId stream = engine.Connect("somewhere");
    REQUIRE(engine.AwaitEnd(stream));
    CHECK(absl::IsInvalidArgument(engine.events.Get(stream).why));
  }
  SECTION("a job that nobody expects, until the deadline") {
    JoinedNode b("node-b");
    const StreamId stream = engine.Connect(b.door->address(), milliseconds(300));
    REQUIRE(engine.AwaitEnd(stream));
    CHECK(absl::IsDeadlineExceeded(engine.events.Get(stream).why));
  }
  SECTION("a node that drains") {
    JoinedNode b("node-b");
    b.network->RefuseNewJobs(true);
    const StreamId stream = engine.Connect(b.door->address());
    REQUIRE(engine.AwaitEnd(stream));
    CHECK(absl::IsUnavailable(engine.events.Get(stream).why));
  }
}

TEST_CASE("NodeNetwork: what an engine had is free when it has gone") {
  JoinedNode a("node-a");
  JoinedNode b("node-b");
  ControlEngine node(b.network.get());
  const std::size_t before = CountDescriptors();
  {
    ControlEngine coordinator(a.network.get());
    const auto wires = a.MakeWires(coordinator.engine);
    coordinator.Expect();
    const StreamId stream = node.Connect(a.door->address());
    REQUIRE(coordinator.AwaitNode());
    coordinator.Connect("127.0.0.1:1", seconds(60));
    wires->Open(Membership(0, {a.door->address(), "127.0.0.1:1"}));
    wires->Dial(kWireId, NodeIndex(1), 0);
    coordinator.engine.End();
    // The node's stream ends with the engine's process; nobody is let in any more.
    coordinator.peers->Shutdown(Clock::now());
    REQUIRE(node.AwaitEnd(stream));
    const StreamId late = node.Connect(a.door->address(), milliseconds(300));
    REQUIRE(node.AwaitEnd(late));
    CHECK(absl::IsDeadlineExceeded(node.events.Get(late).why));
  }
  // The node's half keeps a duplicate of its stream, which has ended, until it has another one.
  CHECK(Within([&] { return CountDescriptors() <= before + 1; }));
  // The same wire is another engine's now.
  JoinedEngine next(a.network.get());
  const auto wires = a.MakeWires(next);
  const auto others = b.MakeWires(node.engine);
  const std::vector<std::string> addresses = {a.door->address(), b.door->address()};
  wires->Open(Membership(0, addresses));
  others->Open(Membership(1, addresses));
  others->Dial(kWireId, NodeIndex(0), 0);
  CHECK(Await(*wires, 1).size() == 1);
  CHECK(Await(*others, 1).size() == 1);
}

TEST_CASE("NodeNetwork: places of an engine's connections are given back when it goes") {
  JoinedNode a("node-a");
  JoinedNode b("node-b");
  ControlEngine node(b.network.get());
  // More in all than one user may have at a time.
  constexpr std::size_t kStreams = 128;
  for (std::size_t round = 0; round <= ExpectedJobs::kMostConnections / kStreams; ++round) {
    ControlEngine coordinator(a.network.get());
    coordinator.Expect();
    std::vector<StreamId> streams;
    for (std::size_t i = 0; i < kStreams; ++i) streams.push_back(node.Connect(a.door->address()));
    REQUIRE(coordinator.AwaitNode(kStreams));
    coordinator.engine.End();
    coordinator.peers->Shutdown(Clock::now());
    for (const StreamId stream : streams) CHECK(node.AwaitEnd(stream));
  }
}

TEST_CASE("NodeNetwork: wires of two engines with different numbers, and of one number, apart") {
  JoinedNode a("node-a");
  JoinedNode b("node-b");
  JoinedEngine one(a.network.get(), kUser, "one");
  JoinedEngine two(a.network.get(), kUser + 1, "two");
  JoinedEngine far(b.network.get(), kUser, "one");
  const auto ones = a.MakeWires(one);
  const auto twos = a.MakeWires(two);
  const auto fars = b.MakeWires(far);
  const std::vector<std::string> addresses = {a.door->address(), b.door->address()};
  ones->Open(Membership(0, addresses));
  twos->Open(Membership(0, addresses, kWireId + 1));
  REQUIRE(one.objections().empty());
  // Another engine's: it hears why, for a node, and for each that it dials.
  twos->Open(Membership(0, addresses));
  twos->Dial(kWireId, NodeIndex(1), 3);
  const auto refused = Await(*twos, 2);
  REQUIRE(refused.size() == 2);
  for (const auto& event : refused) {
    CHECK(event.node == NodeIndex(1));
    CHECK(absl::IsAlreadyExists(event.status));
    CHECK_THAT(std::string(event.status.message()), Contains("another job"));
  }
  fars->Open(Membership(1, addresses));
  fars->Dial(kWireId, NodeIndex(0), 0);
  const auto arrived = Await(*ones, 1);
  REQUIRE(arrived.size() == 1);
  const auto dialled = Await(*fars, 1);
  REQUIRE(dialled.size() == 1);
  CHECK(AreConnected(arrived[0].socket.get(), dialled[0].socket.get()));
  // Of the other purpose it is another wire.
  const auto exchanges = a.MakeWires(two, DoorPurpose::kExchange);
  exchanges->Open(Membership(0, addresses));
  exchanges->Dial(kWireId, NodeIndex(0), 0);
  const auto itself = Await(*exchanges, 1);
  REQUIRE(itself.size() == 1);
  CHECK(absl::IsInvalidArgument(itself[0].status));
  // What the one who was refused closes is not the owner's.
  twos->Close(kWireId);
  two.objections();
  fars->Dial(kWireId, NodeIndex(0), 1);
  CHECK(Await(*ones, 1).size() == 1);
  CHECK(one.objections().empty());
  CHECK(two.objections().empty());
  CHECK(twos->Take().empty());
}

TEST_CASE("NodeNetwork: a wire that is opened again hears nothing of before") {
  JoinedNode a("node-a");
  JoinedNode b("node-b");
  JoinedEngine one(a.network.get());
  JoinedEngine far(b.network.get());
  const auto ones = a.MakeWires(one);
  const auto fars = b.MakeWires(far);
  const std::vector<std::string> addresses = {a.door->address(), b.door->address()};
  fars->Open(Membership(1, addresses));
  for (int round = 0; round < 50; ++round) {
    ones->Open(Membership(0, addresses));
    ones->Dial(kWireId, NodeIndex(1), static_cast<std::uint32_t>(round % 8));
    if (round % 3 == 0) std::this_thread::sleep_for(milliseconds(1));
    ones->Close(kWireId);
  }
  ones->Open(Membership(0, addresses));
  ones->Dial(kWireId, NodeIndex(1), 9);
  const auto events = Await(*ones, 1);
  REQUIRE(events.size() == 1);
  CHECK(events[0].stream == 9);
  CHECK(one.objections().empty());
}

}  // namespace ringd
