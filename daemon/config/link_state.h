// Whether the network interfaces that a configuration names can carry anything yet.
#ifndef RINGD_DAEMON_CONFIG_LINK_STATE_H_
#define RINGD_DAEMON_CONFIG_LINK_STATE_H_

#include <string>
#include <vector>

#include "daemon/config/config.h"

namespace ringd {

// The interfaces on which other nodes are reached: peer_interface and data_interfaces, without the
// loopback one. Before ResolveNetwork the ones that are named; after it also what stands for
// peer_address.
std::vector<std::string> LinksOf(const Config& config);

// What keeps interfaces from carrying data, in words: "eth1 has no carrier; eth2 does not exist".
// Empty: nothing. Addresses that mean nothing on other nodes (fe80::) do not count. RDMA devices
// are always ready. Does not block.
std::string DescribeUnreadyLinks(const std::vector<std::string>& interfaces);

// A network that an interface has an address in, as "10.1.0.0/24".
struct InterfaceNetwork {
  std::string interface;
  std::string network;
};
// Of these interfaces, but link-local ones. Does not block.
std::vector<InterfaceNetwork> NetworksOf(const std::vector<std::string>& interfaces);

// Names the interfaces that share a network, of which the kernel would use one alone. Empty: none.
std::string DescribeSharedNetworks(const std::vector<InterfaceNetwork>& networks);

}  // namespace ringd

#endif  // RINGD_DAEMON_CONFIG_LINK_STATE_H_
