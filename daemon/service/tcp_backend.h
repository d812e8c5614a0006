// ringd's own wire over TCP, with the door through which its connections come.
#ifndef RINGD_DAEMON_SERVICE_TCP_BACKEND_H_
#define RINGD_DAEMON_SERVICE_TCP_BACKEND_H_

#include <memory>

#include "absl/status/statusor.h"
#include "backends/backend.h"
#include "daemon/config/config.h"

namespace ringd {

// Listens on the first of data_interfaces, on any port, and has others prove that they belong to the job before anything they
// send is believed. Everything ends with the Transport.
//   kNotFound: this node has no address that others could reach; the message names the setting. Else what the kernel says.
absl::StatusOr<std::unique_ptr<Transport>> MakeTcpBackend(const Config& config,
                                                          const TransportOptions& options,
                                                          bool has_cluster_key);

}  // namespace ringd

#endif  // RINGD_DAEMON_SERVICE_TCP_BACKEND_H_
