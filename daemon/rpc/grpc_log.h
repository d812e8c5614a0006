// gRPC's own lines in ringd's log.
#ifndef RINGD_DAEMON_RPC_GRPC_LOG_H_
#define RINGD_DAEMON_RPC_GRPC_LOG_H_

namespace ringd {

// From now on what gRPC would write to standard error is a line of the log. Its errors are warnings
// there: whoever called gRPC says what they mean. Call once, before other threads use gRPC.
void RouteGrpcLog();

}  // namespace ringd

#endif  // RINGD_DAEMON_RPC_GRPC_LOG_H_
