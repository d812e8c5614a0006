// An absl::Status as gRPC's. Included by the services' sources only.
#ifndef RINGD_DAEMON_RPC_GRPC_STATUS_H_
#define RINGD_DAEMON_RPC_GRPC_STATUS_H_

#include <grpcpp/support/status.h>

#include <string>

#include "absl/status/status.h"
#include "proto/base/text.h"

namespace ringd {

// The codes have equal numbers. The text is cut: it travels in a trailer, and gRPC drops a reply
// whose trailers exceed 8 KiB (a byte may take three there).
inline grpc::Status ToGrpcStatus(const absl::Status& status) {
  constexpr std::size_t kMaxText = 2048;
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                      std::string(CutToLength(status.message(), kMaxText)));
}

}  // namespace ringd

#endif  // RINGD_DAEMON_RPC_GRPC_STATUS_H_
