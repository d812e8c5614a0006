// Host memory between nodes, over whatever UCX can use: TCP, RDMA, shared memory.
#ifndef RINGD_BACKENDS_UCX_UCX_TRANSPORT_H_
#define RINGD_BACKENDS_UCX_UCX_TRANSPORT_H_

#include <memory>

#include "absl/status/statusor.h"
#include "backends/backend.h"

namespace ringd {

// Makes a Transport on one UCX worker. Does not connect to anybody. Takes all options but
// congestion_control: UCX makes its sockets as its own settings say (UCX_TCP_...).
//   kInvalidArgument: UCX knows no such transport or interface; the message names them.
absl::StatusOr<std::unique_ptr<Transport>> CreateUcxTransport(const TransportOptions& options);

}  // namespace ringd

#endif  // RINGD_BACKENDS_UCX_UCX_TRANSPORT_H_
