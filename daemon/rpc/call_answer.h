// How the engine's answers become gRPC's. Included by the services' sources only.
#ifndef RINGD_DAEMON_RPC_CALL_ANSWER_H_
#define RINGD_DAEMON_RPC_CALL_ANSWER_H_

#include <grpcpp/server_context.h>
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

// Serves a call: `ask` gets the Answer, and hands it to the engine.
template <typename Reply, typename Ask>
grpc::ServerUnaryReactor* Serve(grpc::CallbackServerContext* context, Reply* reply, Ask ask) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  ask(AnswerTo(reactor, reply));
  return reactor;
}

}  // namespace ringd

#endif  // RINGD_DAEMON_RPC_CALL_ANSWER_H_
