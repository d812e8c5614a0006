// UCX's handles with owners, and its error codes as Status.
#ifndef RINGD_BACKENDS_UCX_UCX_HANDLES_H_
#define RINGD_BACKENDS_UCX_UCX_HANDLES_H_

#include <ucp/api/ucp.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "backends/backend.h"

namespace ringd {

struct UcpContextDeleter {
  void operator()(ucp_context_h context) const noexcept { ucp_cleanup(context); }
};
struct UcpWorkerDeleter {
  void operator()(ucp_worker_h worker) const noexcept { ucp_worker_destroy(worker); }
};
using UcpContext = std::unique_ptr<ucp_context, UcpContextDeleter>;
using UcpWorker = std::unique_ptr<ucp_worker, UcpWorkerDeleter>;

// UCX's own text is kept, after what was tried.
absl::Status UcxError(absl::string_view what, ucs_status_t status);

// No other transport than TCP may carry bytes to other nodes.
bool IsTcpAlone(absl::string_view transports);

// A context configured from `options`; UCX_* variables of the environment count for what is not set
// here.
//   kInvalidArgument: UCX does not know a transport or finds no such interface.
absl::StatusOr<UcpContext> CreateUcpContext(const TransportOptions& options);

// A worker for one thread that can be slept on.
absl::StatusOr<UcpWorker> CreateUcpWorker(ucp_context_h context);

// The worker's address, to be sent to other nodes.
absl::StatusOr<std::string> UcpWorkerAddress(ucp_worker_h worker);

// What carries the bytes of an endpoint: "tcp/eth0", or several, separated by ", ".
std::string DescribeUcpEndpoint(ucp_ep_h endpoint);

}  // namespace ringd

#endif  // RINGD_BACKENDS_UCX_UCX_HANDLES_H_
