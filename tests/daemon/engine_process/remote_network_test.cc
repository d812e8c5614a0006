#include "daemon/engine_process/remote_network.h"

#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <utility>
#include <vector>

#include "tests/count_descriptors.h"
#include "tests/daemon/engine_process/wire_helpers.h"

namespace ringd {

TEST_CASE("RemoteNetwork: events that belong to nothing are dropped, and their sockets closed") {
  const std::size_t before = CountDescriptors();
  std::vector<v1::EngineNetworkRequest> asked;
  RemoteNetwork network(
      0, [&](v1::EngineNetworkRequest request) { asked.push_back(std::move(request)); });
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
