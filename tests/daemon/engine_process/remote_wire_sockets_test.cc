#include "daemon/engine_process/remote_wire_sockets.h"

#include <fcntl.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <string>

#include "tests/daemon/door/door_fixture.h"
#include "tests/daemon/engine_process/joined_engine.h"
#include "tests/daemon/engine_process/wire_helpers.h"

namespace ringd {
namespace {

using Catch::Contains;
using Event = WireSockets::Event;

// The wires of an engine, through the door of a node of its own.
struct WireHost {
  explicit WireHost(const std::string& name, const NodeNetworkOptions& options = {})
      : node(name, options), engine(node.network.get()), wires(node.MakeWires(engine)) {}

  std::vector<Event> Await(std::size_t count) { return ringd::Await(*wires, count); }

  JoinedNode node;
  JoinedEngine engine;
  std::unique_ptr<WireSockets> wires;
};

class Hosts {
 public:
  explicit Hosts(int count, const NodeNetworkOptions& options = {}) {
    for (int i = 0; i < count; ++i) {
      hosts_.push_back(std::make_unique<WireHost>("node-" + std::to_string(i), options));
    }
  }
  WireHost& operator[](int i) { return *hosts_[static_cast<std::size_t>(i)]; }
  WireSockets& wires(int i) { return *hosts_[static_cast<std::size_t>(i)]->wires; }

  WireMembership Membership(int self, std::uint64_t wire_id = kWireId) {
    std::vector<std::string> addresses;
    for (const auto& host : hosts_) addresses.push_back(host->wires->LocalAddress());
    return ringd::Membership(self, addresses, wire_id);
  }
  void OpenAll() {
    for (int i = 0; i < static_cast<int>(hosts_.size()); ++i) wires(i).Open(Membership(i));
  }

 private:
  std::vector<std::unique_ptr<WireHost>> hosts_;
};

}  // namespace

TEST_CASE("RemoteWireSockets: a stream goes to the interface that is its turn") {
  WireHost here("node-0");
  WireHost there("node-1");
  REQUIRE(there.node.door->AlsoListenOn("127.0.0.2").ok());
  const std::string own_address = there.wires->LocalAddress();
  const std::string port = own_address.substr(own_address.rfind(':'));
  WireMembership membership;
  membership.wire_id = kWireId;
  membership.key = std::string(kSha256Bytes, 'k');
  // As if this node had two interfaces, too.
  const std::string own = here.wires->LocalAddress();
  membership.addresses = {own + "," + own, "127.0.0.1" + port + ",127.0.0.2" + port};
  membership.node_names = {"node-0", "node-1"};
  here.wires->Open(membership);
  membership.self = NodeIndex(1);
  there.wires->Open(membership);
  for (std::uint32_t stream = 0; stream < 3; ++stream) {
    here.wires->Dial(kWireId, NodeIndex(1), stream);
  }
  std::map<std::uint32_t, std::string> hosts;
  for (const Event& event : here.Await(3)) {
    INFO(event.status);
    REQUIRE(event.status.ok());
    sockaddr_in address{};
    socklen_t length = sizeof(address);
    ::getpeername(event.socket.get(), reinterpret_cast<sockaddr*>(&address), &length);
    std::array<char, INET_ADDRSTRLEN> text{};
    hosts[event.stream] = ::inet_ntop(AF_INET, &address.sin_addr, text.data(), text.size());
  }
  CHECK(hosts ==
        std::map<std::uint32_t, std::string>{{0, "127.0.0.1"}, {1, "127.0.0.1"}, {2, "127.0.0.2"}});
}

TEST_CASE(
    "RemoteWireSockets: every node gets the ends of what it dialled and of what others dialled") {
  Hosts hosts(3);
  hosts.OpenAll();
  const auto dial = [&](int from, int to, std::uint32_t stream) {
    hosts.wires(from).Dial(kWireId, NodeIndex(to), stream);
  };
  dial(0, 1, 0);
  dial(0, 1, 1);
  dial(1, 2, 0);
  dial(2, 0, 5);
  dial(1, 0, 0);  // both ways at once: both stay
  std::map<std::pair<int, int>, std::map<std::uint32_t, Event>> dialled;  // by from and to
  std::map<std::pair<int, int>, std::map<std::uint32_t, Event>> accepted;
  for (int self = 0; self < 3; ++self) {
    for (Event& event : hosts[self].Await(self == 2 ? 2 : 4)) {
      INFO(event.status);
      REQUIRE(event.status.ok());
      CHECK(event.wire_id == kWireId);
      CHECK((::fcntl(event.socket.get(), F_GETFL) & O_NONBLOCK) != 0);
      const int other = event.node.value();
      const std::uint32_t stream = event.stream;
      if (event.dialled_here) {
        dialled[{self, other}][stream] = std::move(event);
      } else {
        accepted[{other, self}][stream] = std::move(event);
      }
    }
  }
  CHECK(dialled.size() == 4);
  REQUIRE(accepted.size() == 4);
  for (const auto& [pair, streams] : dialled) {
    for (const auto& [stream, event] : streams) {
      INFO(pair.first << " to " << pair.second << ", stream " << stream);
      REQUIRE(accepted[pair].contains(stream));
      CHECK(AreConnected(event.socket.get(), accepted[pair][stream].socket.get()));
    }
  }
}

TEST_CASE("RemoteWireSockets: a dialler tries until the other node has opened the wire") {
  Hosts hosts(2);
  hosts.wires(0).Open(hosts.Membership(0));
  hosts.wires(0).Dial(kWireId, NodeIndex(1), 0);
  // Another one, whose time is short, shows that it was tried and refused.
  NodeNetworkOptions hasty;
  hasty.wire_patience = std::chrono::milliseconds(100);
  WireHost third("node-2", hasty);
  WireMembership membership = hosts.Membership(0);
  third.wires->Open(membership);
  third.wires->Dial(kWireId, NodeIndex(1), 0);
  const std::vector<Event> refused = third.Await(1);
  REQUIRE(refused.size() == 1);
  CHECK(refused[0].status.code() == absl::StatusCode::kDeadlineExceeded);
  CHECK(refused[0].dialled_here);
  CHECK_FALSE(refused[0].socket.valid());
  CHECK_THAT(std::string(refused[0].status.message()),
             Contains("node-1 at " + membership.addresses[1]));

  CHECK(hosts.wires(0).Take().empty());
  hosts.wires(1).Open(hosts.Membership(1));
  const std::vector<Event> events = hosts[0].Await(1);
  REQUIRE(events.size() == 1);
  CHECK(events[0].status.ok());
  CHECK(hosts[1].Await(1).size() == 1);
}

TEST_CASE("RemoteWireSockets: another key is told at once") {
  Hosts hosts(2);
  hosts.wires(0).Open(hosts.Membership(0));
  WireMembership other = hosts.Membership(1);
  other.key.back() = '!';
  hosts.wires(1).Open(other);
  hosts.wires(0).Dial(kWireId, NodeIndex(1), 0);
  const std::vector<Event> events = hosts[0].Await(1);
  REQUIRE(events.size() == 1);
  CHECK(events[0].status.code() == absl::StatusCode::kUnauthenticated);
  CHECK(events[0].node == NodeIndex(1));
  CHECK(hosts.wires(1).Take().empty());
}

TEST_CASE(
    "RemoteWireSockets: only other nodes of the wire are let in, and only those that mean this "
    "one") {
  // The dialler's own idea of the wire differs: it takes itself, or whom it dials, for another.
  NodeNetworkOptions hasty;
  hasty.wire_patience = std::chrono::milliseconds(150);
  Hosts hosts(3, hasty);
  hosts.wires(1).Open(hosts.Membership(1));
  WireMembership wrong = hosts.Membership(0);
  NodeIndex to(1);
  std::uint32_t stream = 0;
  SECTION("it dials a node 2 that is node 1") {
    wrong.addresses[2] = wrong.addresses[1];
    to = NodeIndex(2);
  }
  SECTION("it says it is node 1") {
    wrong.self = NodeIndex(1);
    // So that it may dial node 1: a wire in which that is another's place can't be had otherwise.
    std::swap(wrong.addresses[1], wrong.addresses[0]);
    to = NodeIndex(0);
  }
  SECTION("it says it is a node that there is not") {
    wrong.self = NodeIndex(3);
    wrong.addresses.push_back(wrong.addresses[0]);
    wrong.node_names.push_back("node-3");
  }
  SECTION("a stream beyond all settings") { stream = OpenWires::kMostStreams; }
  hosts.wires(0).Open(wrong);
  hosts.wires(0).Dial(kWireId, to, stream);
  const std::vector<Event> events = hosts[0].Await(1);
  REQUIRE(events.size() == 1);
  CHECK(events[0].status.code() == absl::StatusCode::kDeadlineExceeded);
  CHECK_THAT(std::string(events[0].status.message()), Contains("nobody there waits"));
  CHECK(hosts.wires(1).Take().empty());
}

TEST_CASE("RemoteWireSockets: a node that can't be dialled is an event with the reason") {
  Hosts hosts(2);
  WireMembership membership = hosts.Membership(0);
  NodeIndex to(1);
  std::string reason;
  SECTION("itself") {
    to = NodeIndex(0);
    reason = "none to which";
  }
  SECTION("none of the wire's") {
    to = NodeIndex(2);
    reason = "none to which";
  }
  SECTION("an address that is none") {
    membership.addresses[1] = "somewhere";
    reason = "node-1";
  }
  SECTION("a key of another length") {
    membership.key = "short";
    reason = "5 bytes, not 32";
  }
  hosts.wires(0).Open(membership);
  hosts.wires(0).Dial(kWireId, to, 3);
  const std::vector<Event> events = hosts[0].Await(1);
  REQUIRE(events.size() == 1);
  CHECK(events[0].status.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(events[0].status.message()), Contains(reason));
  CHECK(events[0].node == to);
  CHECK(events[0].stream == 3);
}

TEST_CASE(
    "RemoteWireSockets: a wire that is closed closes what was not taken, and nothing of it comes") {
  Hosts hosts(2);
  hosts.OpenAll();
  hosts.wires(0).Open(hosts.Membership(0, kWireId + 1));
  hosts.wires(1).Open(hosts.Membership(1, kWireId + 1));
  hosts.wires(0).Dial(kWireId, NodeIndex(1), 0);
  const std::vector<Event> events = hosts[0].Await(1);
  REQUIRE(events.size() == 1);
  REQUIRE(events[0].status.ok());
  pollfd arrived{hosts.wires(1).event_fd(), POLLIN, 0};
  REQUIRE(::poll(&arrived, 1, 20'000) == 1);
  hosts.wires(1).Close(kWireId);
  pollfd hung_up{events[0].socket.get(), POLLRDHUP, 0};
  CHECK(::poll(&hung_up, 1, 20'000) == 1);
  CHECK(hosts.wires(1).Take().empty());

  // What is being dialled ends; the other wire's goes on.
  hosts.wires(0).Dial(kWireId, NodeIndex(1), 1);
  hosts.wires(0).Close(kWireId);
  hosts.wires(1).Open(hosts.Membership(1));
  hosts.wires(0).Dial(kWireId + 1, NodeIndex(1), 2);
  const std::vector<Event> others = hosts[0].Await(1);
  REQUIRE(others.size() == 1);
  CHECK(others[0].wire_id == kWireId + 1);
  CHECK(others[0].status.ok());
  hosts.wires(0).Close(kWireId);  // of one that is closed nothing happens
  hosts.wires(0).Dial(kWireId, NodeIndex(1), 0);
  CHECK(hosts.wires(0).Take().empty());
}

TEST_CASE(
    "RemoteWireSockets: connections that nobody takes are so many at most, and the rest come "
    "later") {
  NodeNetworkOptions few;
  few.most_untaken = 3;
  Hosts hosts(2, few);
  hosts.OpenAll();
  constexpr std::uint32_t kCount = 10;
  for (std::uint32_t stream = 0; stream < kCount; ++stream) {
    hosts.wires(0).Dial(kWireId, NodeIndex(1), stream);
  }
  CHECK(hosts[0].Await(few.most_untaken).size() == few.most_untaken);
  std::set<std::uint32_t> streams;
  std::size_t most = 0;
  std::vector<Event> kept;
  CHECK(Within([&] {
    std::vector<Event> events = hosts.wires(1).Take();
    most = std::max(most, events.size());
    for (Event& event : events) {
      streams.insert(event.stream);
      kept.push_back(std::move(event));
    }
    return streams.size() == kCount;
  }));
  CHECK(most <= few.most_untaken);
  CHECK(kept.size() == kCount);
}

TEST_CASE(
    "RemoteWireSockets: of two connections of one stream that nobody has taken the second counts") {
  // Its dialler has not heard of the first one that it was let in.
  Hosts hosts(2);
  hosts.OpenAll();
  hosts.wires(0).Dial(kWireId, NodeIndex(1), 4);
  std::vector<Event> first = hosts[0].Await(1);
  REQUIRE(first.size() == 1);
  hosts.wires(0).Dial(kWireId, NodeIndex(1), 4);
  const std::vector<Event> second = hosts[0].Await(1);
  REQUIRE(second.size() == 1);
  pollfd hung_up{first[0].socket.get(), POLLRDHUP, 0};
  CHECK(::poll(&hung_up, 1, 20'000) == 1);
  const std::vector<Event> arrived = hosts[1].Await(1);
  REQUIRE(arrived.size() == 1);
  CHECK(AreConnected(second[0].socket.get(), arrived[0].socket.get()));
  CHECK(hosts.wires(1).Take().empty());
}

TEST_CASE("RemoteWireSockets: so many dials are under way at a time, and the others wait") {
  constexpr std::size_t kMost = RemoteWireSockets::kMostDials;
  const std::shared_ptr<RemoteWires> shared = *RemoteWires::Create();
  std::vector<v1::EngineWireDial> told;
  const auto send = [&told](const v1::EngineNetworkRequest& request) {
    if (request.has_wire_dial()) told.push_back(request.wire_dial());
  };
  RemoteWireSockets wires(DoorPurpose::kWire, "127.0.0.1:1", send, 0, shared);
  wires.Open(Membership(0, {"127.0.0.1:1", "127.0.0.1:2"}, 1));
  wires.Open(Membership(0, {"127.0.0.1:1", "127.0.0.1:2"}, 2));
  for (std::uint32_t stream = 0; stream < kMost - 1; ++stream) wires.Dial(1, NodeIndex(1), stream);
  for (std::uint32_t stream = 0; stream < 4; ++stream) wires.Dial(2, NodeIndex(1), stream);
  REQUIRE(told.size() == kMost);
  CHECK(told.back().wire_id() == 2);
  // One ends, whether it could be opened or not; and one that others opened ends none.
  v1::EngineWireEvent ended;
  ended.set_wire_id(1);
  ended.set_node(1);
  UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  shared->OnEvent(ended, std::move(null));
  CHECK(wires.Take().size() == 1);
  CHECK(told.size() == kMost);
  ended.set_dialled_here(true);
  ended.mutable_status()->set_code(static_cast<int>(absl::StatusCode::kUnavailable));
  shared->OnEvent(ended, {});
  CHECK(wires.Take().size() == 1);
  REQUIRE(told.size() == kMost + 1);
  CHECK(told.back().stream() == 1);
  // Those of a wire that is closed leave room, and are not told any more.
  SECTION("who dials") { wires.Close(1); }
  SECTION("who waits") {
    wires.Close(2);
    wires.Close(1);
    CHECK(told.size() == kMost + 1);
    return;
  }
  REQUIRE(told.size() == kMost + 3);
  CHECK(told.back().wire_id() == 2);
  CHECK(told.back().stream() == 3);
}

TEST_CASE("RemoteWireSockets: it may go while its door is busy, and another one take its place") {
  Hosts hosts(2);
  for (int round = 0; round < 20; ++round) {
    hosts.OpenAll();
    for (std::uint32_t stream = 0; stream < 8; ++stream) {
      hosts.wires(0).Dial(kWireId, NodeIndex(1), stream);
      hosts.wires(1).Dial(kWireId, NodeIndex(0), stream);
    }
    // As when a transport is opened anew: the new one is there before the old one goes.
    WireHost& host = hosts[round % 2];
    host.wires = host.node.MakeWires(host.engine);
    hosts.wires(0).Close(kWireId);
    hosts.wires(1).Close(kWireId);
  }
  hosts.OpenAll();
  hosts.wires(0).Dial(kWireId, NodeIndex(1), 0);
  const std::vector<Event> dialled = hosts[0].Await(1);
  REQUIRE(dialled.size() == 1);
  INFO(dialled[0].status);
  CHECK(dialled[0].status.ok());
  CHECK(hosts[1].Await(1).size() == 1);
}

TEST_CASE("RemoteWireSockets: descriptors of all ends are closed with it") {
  const std::size_t before = CountDescriptors();
  {
    Hosts hosts(2);
    hosts.OpenAll();
    for (std::uint32_t stream = 0; stream < 5; ++stream) {
      hosts.wires(0).Dial(kWireId, NodeIndex(1), stream);
      hosts.wires(1).Dial(kWireId, NodeIndex(0), stream);
    }
    CHECK(hosts[0].Await(7).size() >= 7);
    hosts.wires(0).Dial(kWireId, NodeIndex(1), 6);
  }
  CHECK(CountDescriptors() == before);
}

}  // namespace ringd
