#include "daemon/supervisor/engine_network.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/count_descriptors.h"
#include "tests/daemon/door/door_fixture.h"
#include "tests/daemon/engine_process/joined_engine.h"
#include "tests/daemon/engine_process/wire_helpers.h"
#include "tests/daemon/supervisor/bare_engine.h"

namespace ringd {
namespace {

using std::chrono::milliseconds;

v1::EngineNetworkRequest ExpectRequest(std::uint64_t number, const std::string& key) {
  v1::EngineNetworkRequest request;
  request.mutable_expect()->set_expectation(number);
  request.mutable_expect()->set_key(key);
  return request;
}

}  // namespace

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

TEST_CASE("EngineNetwork: a user's engines have a bound together, which is not other users'") {
  JoinedNode a("node-a");
  std::vector<std::unique_ptr<BareEngine>> engines;
  std::uint64_t dialled = 0;
  while (dialled < UserPlaces::kMostDials) {
    engines.push_back(std::make_unique<BareEngine>(a.network.get()));
    for (std::uint64_t i = 0; i < EngineNetwork::kMostDials; ++i, ++dialled) {
      REQUIRE(engines.back()->half->OnRequest(DialRequestOf(i, "127.0.0.1:1")).ok());
    }
    CHECK(engines.back()->told() == 0);
  }
  BareEngine next(a.network.get());
  REQUIRE(next.half->OnRequest(DialRequestOf(1, "127.0.0.1:1")).ok());
  REQUIRE(next.told() == 1);
  CHECK(next.last().coordinator_dialled().status().message() ==
        "4096 coordinators are being looked for by this user");
  BareEngine other(a.network.get(), kEngineUser + 1);
  REQUIRE(other.half->OnRequest(DialRequestOf(1, "127.0.0.1:1")).ok());
  std::this_thread::sleep_for(milliseconds(50));
  CHECK(other.told() == 0);
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

}  // namespace ringd
