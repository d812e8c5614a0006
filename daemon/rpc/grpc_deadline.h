// A deadline of our clock as gRPC takes it. Included by sources that include gRPC.
#ifndef RINGD_DAEMON_RPC_GRPC_DEADLINE_H_
#define RINGD_DAEMON_RPC_GRPC_DEADLINE_H_

#include <chrono>

#include "proto/base/clock.h"

namespace ringd {

// gRPC's C++ interface knows the wall clock only; what counts is the time that is left.
inline std::chrono::system_clock::time_point ToGrpcDeadline(Clock::time_point deadline) {
  return std::chrono::system_clock::now() + (deadline - Clock::now());
}

}  // namespace ringd

#endif  // RINGD_DAEMON_RPC_GRPC_DEADLINE_H_
