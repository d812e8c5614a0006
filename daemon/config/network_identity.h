// Fills in what a configuration leaves to the machine: its name, addresses and interfaces.
#ifndef RINGD_DAEMON_CONFIG_NETWORK_IDENTITY_H_
#define RINGD_DAEMON_CONFIG_NETWORK_IDENTITY_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/config/config.h"

namespace ringd {

// Sets node_name, the host of peer_address (from peer_interface), advertised_host and
// data_interfaces where they are empty, and backend where it is "auto"; what is set stays. An
// address of no local interface leaves data_interfaces empty: serving on it will fail with a
// better message.
//   kNotFound: peer_interface or one of data_interfaces does not exist or has no address; the message
//   lists the interfaces there are.
absl::Status ResolveNetwork(Config& config);

// The numeric addresses on which other nodes reach this one's door for data: one for each of data_interfaces, in their order;
// if there are none, what advertised_host stands for. The first one is the fast path's, too. `config` is complete
// (ResolveNetwork). May ask a name server.
//   kNotFound: there is none that other nodes could reach; the message names the interface.
absl::StatusOr<std::vector<std::string>> FindDataHosts(const Config& config);

}  // namespace ringd

#endif  // RINGD_DAEMON_CONFIG_NETWORK_IDENTITY_H_
