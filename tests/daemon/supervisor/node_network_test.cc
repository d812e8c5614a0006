#include "daemon/supervisor/node_network.h"

#include <poll.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "daemon/peers/expected_jobs.h"
#include "daemon/peers/socket_peer_network.h"
#include "tests/count_descriptors.h"
#include "tests/daemon/door/door_fixture.h"
#include "tests/daemon/engine_process/joined_engine.h"
#include "tests/daemon/peers/recorded_events.h"

namespace ringd {
namespace {

using Catch::Contains;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::uint64_t kWireId = 77;
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
    return peers->ConnectToCoordinator({address, "nobody's", 4711, ControlKey(job_id, secret), true},
                                       Clock::now() + patience);
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

WireMembership Membership(int self, const std::vector<std::string>& addresses,
                          std::uint64_t wire_id = kWireId) {
  WireMembership membership;
  membership.wire_id = wire_id;
  membership.self = NodeIndex(self);
  membership.key = std::string(kSha256Bytes, 'k');
  membership.addresses = addresses;
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    membership.node_names.push_back("node-" + std::to_string(i));
  }
  return membership;
}

std::vector<WireSockets::Event> Await(WireSockets& wires, std::size_t count) {
  std::vector<WireSockets::Event> all;
  while (all.size() < count) {
    pollfd readable{wires.event_fd(), POLLIN, 0};
    if (::poll(&readable, 1, 20'000) != 1) break;
    for (WireSockets::Event& event : wires.Take()) all.push_back(std::move(event));
  }
  return all;
}

v1::EngineNetworkRequest ExpectRequest(std::uint64_t number, const std::string& key) {
  v1::EngineNetworkRequest request;
  request.mutable_expect()->set_expectation(number);
  request.mutable_expect()->set_key(key);
  return request;
}

v1::EngineNetworkRequest DialRequestOf(std::uint64_t number, const std::string& host_port) {
  v1::EngineNetworkRequest request;
  request.mutable_dial_coordinator()->set_dial(number);
  request.mutable_dial_coordinator()->set_host_port(host_port);
  request.mutable_dial_coordinator()->set_key(std::string(kSha256Bytes, 'k'));
  request.mutable_dial_coordinator()->set_patience_ms(60'000);
  return request;
}

v1::EngineNetworkRequest OpenRequest(std::uint64_t wire_id) {
  v1::EngineNetworkRequest request;
  v1::EngineWireOpen& open = *request.mutable_wire_open();
  open.set_purpose(2);
  open.set_wire_id(wire_id);
  open.set_key(std::string(kSha256Bytes, 'k'));
  for (const char* name : {"node-0", "node-1"}) {
    open.add_addresses("127.0.0.1:1");
    open.add_node_names(name);
  }
  return request;
}

// An engine's supervisor's half alone, and what it is told.
struct BareEngine {
  explicit BareEngine(NodeNetwork* node)
      : half(node->AddEngine(kUser, "job",
                             [this](v1::EngineNetworkEvent event, std::vector<UniqueFd> fds) {
                               const MutexLock lock(mutex);
                               events.push_back(std::move(event));
                               for (UniqueFd& fd : fds) sockets.push_back(std::move(fd));
                             })) {}
  std::size_t told() {
    const MutexLock lock(mutex);
    return events.size();
  }
  v1::EngineNetworkEvent last() {
    const MutexLock lock(mutex);
    return events.back();
  }

  Mutex mutex;
  std::vector<v1::EngineNetworkEvent> events ABSL_GUARDED_BY(mutex);
  std::vector<UniqueFd> sockets ABSL_GUARDED_BY(mutex);
  std::unique_ptr<EngineNetwork> half;
};

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
    b.network->RefuseNewJobs();
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
  CHECK(Within([&] { return CountDescriptors() == before; }));
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

TEST_CASE("EngineNetwork: dials beyond the bound are told so, and the rest goes on") {
  JoinedNode a("node-a");
  BareEngine engine(a.network.get());
  // Nobody listens there: each goes on trying.
  for (std::uint64_t i = 0; i < EngineNetwork::kMostDials; ++i) {
    REQUIRE(engine.half->OnRequest(DialRequestOf(i, "127.0.0.1:1")).ok());
  }
  CHECK(engine.told() == 0);
  REQUIRE(engine.half->OnRequest(DialRequestOf(1 << 20, "127.0.0.1:1")).ok());
  REQUIRE(engine.told() == 1);
  CHECK(engine.last().coordinator_dialled().dial() == 1 << 20);
  CHECK(engine.last().coordinator_dialled().status().code() ==
        static_cast<int>(absl::StatusCode::kResourceExhausted));
  v1::EngineNetworkRequest abandon;
  abandon.mutable_abandon_dial()->set_dial(0);
  REQUIRE(engine.half->OnRequest(abandon).ok());
  REQUIRE(engine.half->OnRequest(abandon).ok());  // it may have ended meanwhile
  // Its place is free when the door has let go of it.
  CHECK(Within([&] {
    const std::size_t told = engine.told();
    REQUIRE(engine.half->OnRequest(DialRequestOf((1 << 21) + told, "127.0.0.1:1")).ok());
    return engine.told() == told;
  }));
}

TEST_CASE("EngineNetwork: connections that an engine does not take are so many at most") {
  NodeNetworkOptions options;
  options.most_untaken = 3;
  JoinedNode a("node-a", options);
  JoinedNode b("node-b");
  BareEngine idle(a.network.get());
  v1::EngineNetworkRequest open = OpenRequest(kWireId);
  REQUIRE(idle.half->OnRequest(open).ok());
  JoinedEngine far(b.network.get());
  const auto fars = b.MakeWires(far);
  fars->Open(Membership(1, {a.door->address(), b.door->address()}));
  for (std::uint32_t stream = 0; stream < 10; ++stream) fars->Dial(kWireId, NodeIndex(0), stream);
  CHECK(Await(*fars, 3).size() == 3);
  std::this_thread::sleep_for(milliseconds(200));
  CHECK(idle.told() == 3);
  v1::EngineNetworkRequest taken;
  taken.mutable_wire_taken()->set_purpose(2);
  taken.mutable_wire_taken()->set_wire_id(kWireId);
  taken.mutable_wire_taken()->set_count(2);
  REQUIRE(idle.half->OnRequest(taken).ok());
  CHECK(Within([&] { return idle.told() == 5; }));
  taken.mutable_wire_taken()->set_count(4);  // of 3
  CHECK(absl::IsInvalidArgument(idle.half->OnRequest(taken)));
}

TEST_CASE("EngineNetwork: requests that no sound engine makes are errors") {
  JoinedNode a("node-a");
  BareEngine engine(a.network.get());
  const std::string key(kSha256Bytes, 'k');
  const auto is_wrong = [&](const v1::EngineNetworkRequest& request) {
    INFO(request.ShortDebugString());
    CHECK(absl::IsInvalidArgument(engine.half->OnRequest(request)));
  };
  is_wrong({});
  is_wrong(ExpectRequest(1, ""));
  is_wrong(ExpectRequest(1, key + "k"));
  REQUIRE(engine.half->OnRequest(ExpectRequest(1, key)).ok());
  is_wrong(ExpectRequest(1, key));
  v1::EngineNetworkRequest ended;
  ended.mutable_connection_ended();
  is_wrong(ended);
  v1::EngineNetworkRequest dial = DialRequestOf(1, "127.0.0.1:1");
  REQUIRE(engine.half->OnRequest(dial).ok());
  is_wrong(dial);
  dial.mutable_dial_coordinator()->set_key("short");
  is_wrong(dial);

  v1::EngineNetworkRequest open = OpenRequest(1);
  REQUIRE(engine.half->OnRequest(open).ok());
  is_wrong(open);
  for (const std::uint32_t purpose : {0U, 1U, 4U, 1U << 16U, ~0U}) {
    open.mutable_wire_open()->set_purpose(purpose);
    is_wrong(open);
  }
  open = OpenRequest(2);
  open.mutable_wire_open()->set_key("short");
  is_wrong(open);
  open = OpenRequest(2);
  for (const int self : {-1, 2, 1 << 30}) {
    open.mutable_wire_open()->set_self(self);
    is_wrong(open);
  }
  open = OpenRequest(2);
  open.mutable_wire_open()->add_addresses("127.0.0.1:1");
  is_wrong(open);
  v1::EngineNetworkRequest wire_dial;
  wire_dial.mutable_wire_dial()->set_purpose(2);
  wire_dial.mutable_wire_dial()->set_wire_id(2);
  is_wrong(wire_dial);
  v1::EngineNetworkRequest taken;
  taken.mutable_wire_taken()->set_purpose(2);
  taken.mutable_wire_taken()->set_wire_id(1);
  taken.mutable_wire_taken()->set_count(1);
  is_wrong(taken);
  CHECK(engine.told() == 0);

  // Of an address that is none the dial hears, as of every other obstacle.
  REQUIRE(engine.half->OnRequest(DialRequestOf(9, std::string(1 << 20, 'x'))).ok());
  CHECK(engine.told() == 1);
  REQUIRE(engine.half->OnRequest(DialRequestOf(10, "127.0.0.1:0x1")).ok());
  CHECK(engine.told() == 2);
}

TEST_CASE("EngineNetwork: expectations and wires are so many at most") {
  JoinedNode a("node-a");
  BareEngine engine(a.network.get());
  const std::string key(kSha256Bytes, 'k');
  for (std::uint64_t i = 0; i < EngineNetwork::kMostExpectations; ++i) {
    REQUIRE(engine.half->OnRequest(ExpectRequest(i, key)).ok());
  }
  CHECK_FALSE(engine.half->OnRequest(ExpectRequest(1 << 20, key)).ok());
  for (std::uint64_t i = 0; i < EngineNetwork::kMostWires; ++i) {
    REQUIRE(engine.half->OnRequest(OpenRequest(i)).ok());
  }
  CHECK_FALSE(engine.half->OnRequest(OpenRequest(1 << 20)).ok());
  // Others don't mind.
  BareEngine other(a.network.get());
  CHECK(other.half->OnRequest(ExpectRequest(1, key)).ok());
  CHECK(other.half->OnRequest(OpenRequest(1 << 20)).ok());
  CHECK(other.told() == 0);
}

TEST_CASE("EngineNetwork: an engine that asks for anything leaves nothing behind") {
  const std::size_t before = CountDescriptors();
  {
    JoinedNode a("node-a");
    JoinedNode b("node-b");
    JoinedEngine honest(a.network.get());
    const auto wires = a.MakeWires(honest);
    const std::vector<std::string> addresses = {a.door->address(), b.door->address()};
    wires->Open(Membership(0, addresses));
    honest.objections();
    std::mt19937_64 random(20);
    const auto small = [&] { return random() % 4; };
    for (int engine_number = 0; engine_number < 20; ++engine_number) {
      BareEngine engine(a.network.get());
      for (int i = 0; i < 200; ++i) {
        v1::EngineNetworkRequest request;
        switch (random() % 9) {
          case 0:
            request = ExpectRequest(small(), std::string(small() == 0 ? random() % 64 : 32, 'k'));
            break;
          case 1:
            request = OpenRequest(kWireId + small());
            request.mutable_wire_open()->set_purpose(static_cast<std::uint32_t>(1 + small()));
            request.mutable_wire_open()->set_self(static_cast<int>(small()) - 1);
            break;
          case 2:
            request.mutable_wire_dial()->set_purpose(2 + small() / 2);
            request.mutable_wire_dial()->set_wire_id(kWireId + small());
            request.mutable_wire_dial()->set_to(static_cast<int>(random()));
            request.mutable_wire_dial()->set_stream(static_cast<std::uint32_t>(random()));
            break;
          case 3:
            request.mutable_wire_close()->set_purpose(static_cast<std::uint32_t>(1 + small()));
            request.mutable_wire_close()->set_wire_id(kWireId + small());
            break;
          case 4:
            request.mutable_wire_taken()->set_purpose(static_cast<std::uint32_t>(1 + small()));
            request.mutable_wire_taken()->set_wire_id(kWireId + small());
            request.mutable_wire_taken()->set_count(static_cast<std::uint32_t>(small()));
            break;
          case 5:
            request = DialRequestOf(small(), small() == 0 ? "nowhere" : b.door->address());
            request.mutable_dial_coordinator()->set_patience_ms(random());
            break;
          case 6:
            request.mutable_abandon_dial()->set_dial(small());
            break;
          case 7:
            request.mutable_stop_expecting()->set_expectation(small());
            break;
          default: {
            std::string bytes(random() % 40, ' ');
            for (char& byte : bytes) byte = static_cast<char>(random());
            if (!request.ParseFromString(bytes)) request.Clear();
          }
        }
        static_cast<void>(engine.half->OnRequest(request));
      }
    }
    // The one whose wire they have meddled with has it still.
    JoinedEngine far(b.network.get());
    const auto fars = b.MakeWires(far);
    fars->Open(Membership(1, addresses));
    wires->Dial(kWireId, NodeIndex(1), 0);
    const auto events = Await(*wires, 1);
    REQUIRE(events.size() == 1);
    INFO(events[0].status);
    CHECK(events[0].status.ok());
  }
  CHECK(CountDescriptors() == before);
}

TEST_CASE("RemoteNetwork: events that belong to nothing are dropped, and their sockets closed") {
  const std::size_t before = CountDescriptors();
  std::vector<v1::EngineNetworkRequest> asked;
  RemoteNetwork network(kUser, [&](v1::EngineNetworkRequest request) {
    asked.push_back(std::move(request));
  });
  const auto with_socket = [] {
    std::vector<UniqueFd> fds;
    fds.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    return fds;
  };
  v1::EngineNetworkEvent event;
  network.OnEvent(event, with_socket());
  event.mutable_wire()->set_purpose(2);
  event.mutable_wire()->set_wire_id(kWireId);
  network.OnEvent(event, with_socket());  // nobody has wires
  auto made = network.MakeWireSockets(DoorPurpose::kWire, "127.0.0.1:1");
  REQUIRE(made.ok());
  network.OnEvent(event, with_socket());  // none is open
  (*made)->Open(Membership(0, {"127.0.0.1:1", "127.0.0.1:2"}));
  network.OnEvent(event, with_socket());  // of another opening
  event.mutable_wire()->set_opening(asked.at(0).wire_open().opening());
  network.OnEvent(event, {});  // without a socket
  CHECK((*made)->Take().empty());
  network.OnEvent(event, with_socket());
  CHECK((*made)->Take().size() == 1);
  CHECK(asked.back().wire_taken().count() == 1);
  network.OnEvent(event, with_socket());
  made->reset();
  CHECK(asked.back().has_wire_close());
  network.OnEvent(event, with_socket());
  event.mutable_coordinator_dialled()->set_dial(4);
  network.OnEvent(event, with_socket());
  event.mutable_node_admitted()->set_expectation(4);
  network.OnEvent(event, with_socket());  // nobody has control streams
  CHECK(asked.back().has_connection_ended());
  event.mutable_node_refused();
  network.OnEvent(event, with_socket());
  CHECK(CountDescriptors() == before);
}

}  // namespace ringd
