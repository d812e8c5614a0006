// A wire between nodes of a test, and what comes of it.
#ifndef RINGD_TESTS_DAEMON_ENGINE_PROCESS_WIRE_HELPERS_H_
#define RINGD_TESTS_DAEMON_ENGINE_PROCESS_WIRE_HELPERS_H_

#include <poll.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "backends/tcp/wire_sockets.h"
#include "proto/door/hmac.h"

namespace ringd {

inline constexpr std::uint64_t kWireId = 77;

inline WireMembership Membership(int self, const std::vector<std::string>& addresses,
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

// Events until there are so many, or nothing comes for longer than any test should take.
inline std::vector<WireSockets::Event> Await(WireSockets& wires, std::size_t count) {
  std::vector<WireSockets::Event> all;
  while (all.size() < count) {
    pollfd readable{wires.event_fd(), POLLIN, 0};
    if (::poll(&readable, 1, 20'000) != 1) break;
    for (WireSockets::Event& event : wires.Take()) all.push_back(std::move(event));
  }
  return all;
}

}  // namespace ringd

#endif  // RINGD_TESTS_DAEMON_ENGINE_PROCESS_WIRE_HELPERS_H_
