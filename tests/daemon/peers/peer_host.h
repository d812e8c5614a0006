// A SocketPeerNetwork with a door of its own on the loopback interface, and what it reports.
#ifndef RINGD_TESTS_DAEMON_PEERS_PEER_HOST_H_
#define RINGD_TESTS_DAEMON_PEERS_PEER_HOST_H_

#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "daemon/door/door.h"
#include "daemon/peers/local_control_door.h"
#include "daemon/peers/socket_peer_network.h"
#include "tests/daemon/peers/recorded_events.h"

namespace ringd {

inline DoorKey ControlKeyOf(const std::string& secret) {
  return KeyForControl(JobKey("", "job", secret, 0));
}

inline std::unique_ptr<Door> OpenPeerDoor(const std::string& address) {
  DoorOptions options;
  options.address = address;
  options.node_name = "node-a";
  auto door = Door::Open(std::move(options));
  INFO(door.status());
  REQUIRE(door.ok());
  return *std::move(door);
}

// Of streams that no processor that stands still for seconds may end.
inline SocketPeerNetworkOptions PatientOptions() {
  SocketPeerNetworkOptions options;
  options.stream.keepalive_timeout = std::chrono::seconds(60);
  options.stream.close_grace = std::chrono::seconds(60);
  return options;
}

struct PeerHost {
  // `address`: host:port to listen on; port 0 takes a free one. Coordinates "job" of user 0, unless
  // `secret` is empty.
  explicit PeerHost(const std::string& secret = "secret", SocketPeerNetworkOptions options = {},
                    const std::string& address = "127.0.0.1:0")
      : door(OpenPeerDoor(address)),
        control(std::make_unique<LocalControlDoor>(door.get(), 0)),
        network(*SocketPeerNetwork::Create(control.get(), options)) {
    network->SetEvents(&events);
    if (!secret.empty()) Expect(secret);
    door->Start();
  }
  ~PeerHost() { Stop(); }

  ExpectationId Expect(const std::string& secret) {
    return network->Expect({"job", 0, ControlKeyOf(secret), true, false});
  }
  StreamId Connect(const std::string& address, std::chrono::milliseconds patience,
                   const std::string& secret = "secret") {
    return network->ConnectToCoordinator({address, "job", 0, ControlKeyOf(secret), true},
                                         Clock::now() + patience);
  }
  void Stop() {
    door->Stop();
    network->Shutdown(Clock::now() + std::chrono::seconds(3));
  }
  const std::string& address() const { return door->address(); }

  RecordedEvents events;
  std::unique_ptr<Door> door;
  std::unique_ptr<LocalControlDoor> control;
  std::unique_ptr<SocketPeerNetwork> network;
};

}  // namespace ringd

#endif  // RINGD_TESTS_DAEMON_PEERS_PEER_HOST_H_
