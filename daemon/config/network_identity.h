// Fills in what a configuration leaves to the machine: its name, addresses and interfaces.
#ifndef RINGD_DAEMON_CONFIG_NETWORK_IDENTITY_H_
#define RINGD_DAEMON_CONFIG_NETWORK_IDENTITY_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "daemon/config/config.h"

namespace ringd {

// Where the kernel lists RDMA devices, by the names that UCX has for them.
inline constexpr absl::string_view kRdmaDevices = "/sys/class/infiniband";

// True of one of data_interfaces that is an RDMA device of this machine, with a port or without.
bool IsRdmaDevice(absl::string_view name, absl::string_view rdma_devices = kRdmaDevices);

// Sets node_name, the host of peer_address (from peer_interface), advertised_host and
// data_interfaces where they are empty, and backend where it is "auto"; what is set stays. An
// address of no local interface leaves data_interfaces empty: serving on it will fail with a
// better message. May ask a name server, also for advertised_addresses, which is set where
// FindDataHosts needs it.
//
// One of data_interfaces may be an RDMA device ("mlx5_0", or "mlx5_0:2" for another port than the
// first; `rdma_devices` is a folder as kRdmaDevices). Then "auto" is UCX, and transports at their
// default become all that it has.
//   kNotFound: peer_interface or one of data_interfaces does not exist or has no address; the
//   message lists the interfaces there are.
//   kInvalidArgument: the backend that is set can't use an RDMA device.
absl::Status ResolveNetwork(Config& config, absl::string_view rdma_devices = kRdmaDevices);

// The numeric addresses on which other nodes reach this one's door for data: one for each of
// data_interfaces, in their order, but for RDMA devices, which have none; without any, what
// advertised_host stood for. The first one is the rank exchange's, too. `config` is complete
// (ResolveNetwork). Does not block.
//   kNotFound: there is none that other nodes could reach; the message names the interface.
absl::StatusOr<std::vector<std::string>> FindDataHosts(const Config& config);

// All addresses that peer_interface has now, but link-local ones; without one, none. Does not
// block.
std::vector<std::string> FindPeerHosts(const Config& config);

// What these interfaces have, but link-local ones: "eth0 10.1.0.1, eth0 2001:db8::1". It differs
// when an address has come or gone. Does not block.
std::string DescribeAddresses(const std::vector<std::string>& interfaces);

}  // namespace ringd

#endif  // RINGD_DAEMON_CONFIG_NETWORK_IDENTITY_H_
