// What a user's engines may take of ringd's descriptors and memory for connections.
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/supervisor/engine_network.h"
#include "tests/daemon/door/door_fixture.h"
#include "tests/daemon/engine_process/joined_engine.h"
#include "tests/daemon/engine_process/wire_helpers.h"
#include "tests/daemon/supervisor/bare_engine.h"

namespace ringd {
namespace {

constexpr int kExhausted = static_cast<int>(absl::StatusCode::kResourceExhausted);

v1::EngineNetworkRequest DialOf(std::uint64_t wire_id, std::uint32_t stream) {
  v1::EngineNetworkRequest request;
  request.mutable_wire_dial()->set_purpose(2);
  request.mutable_wire_dial()->set_wire_id(wire_id);
  request.mutable_wire_dial()->set_to(1);
  request.mutable_wire_dial()->set_stream(stream);
  return request;
}

// A wire between nodes whose addresses and names are so long.
v1::EngineNetworkRequest LongWire(std::uint64_t wire_id, int nodes, std::size_t bytes) {
  v1::EngineNetworkRequest request = OpenRequest(wire_id);
  v1::EngineWireOpen& open = *request.mutable_wire_open();
  open.clear_addresses();
  open.clear_node_names();
  for (int i = 0; i < nodes; ++i) {
    open.add_addresses(std::string(bytes, 'a'));
    open.add_node_names(std::string(bytes, 'n'));
  }
  return request;
}

}  // namespace

TEST_CASE("EngineNetwork: connections that were dialled and not sent are so many of a user") {
  JoinedNode a("node-a");
  JoinedNode b("node-b");
  const std::vector<std::string> addresses = {a.door->address(), b.door->address()};
  JoinedEngine far(b.network.get());
  const auto fars = b.MakeWires(far);
  fars->Open(Membership(1, addresses));
  far.objections();
  // It takes nothing: what it is told stays where it is.
  BareEngine engine(a.network.get());
  v1::EngineNetworkRequest open = OpenRequest(kWireId);
  for (int i = 0; i < 2; ++i) {
    open.mutable_wire_open()->set_addresses(i, addresses[static_cast<std::size_t>(i)]);
  }
  REQUIRE(engine.half->OnRequest(open).ok());
  auto places = engine.half->user_places();
  CountedPlaces::Place all_but_one = places->unsent.Take(UserPlaces::kMostUnsent - 1);
  REQUIRE(engine.half->OnRequest(DialOf(kWireId, 0)).ok());
  REQUIRE(Within([&] { return engine.told() == 1; }));
  CHECK(engine.last().wire().status().code() == 0);
  CHECK(engine.sockets_told() == 1);
  REQUIRE(engine.half->OnRequest(DialOf(kWireId, 1)).ok());
  REQUIRE(Within([&] { return engine.told() == 2; }));
  CHECK(engine.last().wire().status().code() == kExhausted);
  CHECK(engine.last().wire().status().message() == "4096 connections wait for this user's engines");
  CHECK(engine.sockets_told() == 1);
  // Coordinators' count as well.
  REQUIRE(engine.half->OnRequest(DialRequestOf(1, b.door->address())).ok());
  CHECK(places->unsent.Take() == nullptr);
  // When the channel has sent it, its place is free.
  engine.ForgetPlaces();
  REQUIRE(engine.half->OnRequest(DialOf(kWireId, 2)).ok());
  REQUIRE(Within([&] { return engine.told() == 3; }));
  CHECK(engine.last().wire().status().code() == 0);
  CHECK(engine.sockets_told() == 2);
}

TEST_CASE("EngineNetwork: an engine's wires take so much of memory, however short they are sent") {
  JoinedNode a("node-a");
  BareEngine engine(a.network.get());
  // Two bytes each on the wire.
  std::size_t opened = 0;
  while (opened < 1000 && engine.told() == 0) {
    REQUIRE(engine.half->OnRequest(LongWire(++opened, 50'000, 0)).ok());
  }
  REQUIRE(opened < 50);
  CHECK(engine.last().wire().status().message() == "the wires of this job have too many nodes");
  // A job over a thousand nodes has hundreds of wires.
  BareEngine honest(a.network.get(), 1002);
  for (std::uint64_t wire = 0; wire < 1000; ++wire) {
    REQUIRE(honest.half->OnRequest(LongWire(1'000'000 + wire, 1000, 24)).ok());
  }
  CHECK(honest.told() == 0);
}

TEST_CASE("EngineNetwork: the wires of a user's engines have a bound together") {
  JoinedNode a("node-a");
  BareEngine engine(a.network.get());
  BareEngine second(a.network.get());
  BareEngine other(a.network.get(), 1002);
  {
    const auto most = engine.half->user_places()->wire_bytes.Take(UserPlaces::kMostWireBytes);
    REQUIRE(second.half->OnRequest(OpenRequest(1)).ok());
    REQUIRE(second.told() == 1);
    CHECK(second.last().wire().status().code() == kExhausted);
    CHECK(second.last().wire().status().message() ==
          "the wires of this user's jobs have too many nodes");
    REQUIRE(other.half->OnRequest(OpenRequest(2)).ok());
    CHECK(other.told() == 0);
  }
  // What is closed leaves room.
  REQUIRE(second.half->OnRequest(OpenRequest(3)).ok());
  CHECK(second.told() == 1);
  v1::EngineNetworkRequest close;
  close.mutable_wire_close()->set_purpose(2);
  close.mutable_wire_close()->set_wire_id(3);
  REQUIRE(second.half->OnRequest(close).ok());
  CHECK(engine.half->user_places()->wire_bytes.Take(UserPlaces::kMostWireBytes) != nullptr);
}

}  // namespace ringd
