// How the engine's answers become gRPC's. Included by the services' sources only.
#ifndef RINGD_DAEMON_RPC_CALL_ANSWER_H_
#define RINGD_DAEMON_RPC_CALL_ANSWER_H_

#include <grpcpp/support/server_callback.h>

#include <utility>

#include "daemon/engine/engine_control.h"
#include "daemon/rpc/grpc_status.h"

namespace ringd {

// Fills `reply` and ends the call. Both are gRPC's until then.
template <typename Reply>
Answer<Reply> AnswerTo(grpc::ServerUnaryReactor* reactor, Reply* reply) {
  return [reactor, reply](const absl::Status& status, Reply answer) {
    *reply = std::move(answer);
    reactor->Finish(ToGrpcStatus(status));
  };
}

}  // namespace ringd

#endif  // RINGD_DAEMON_RPC_CALL_ANSWER_H_
