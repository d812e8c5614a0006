// What the gRPC services ask of the engine.
#ifndef RINGD_DAEMON_ENGINE_ENGINE_CONTROL_H_
#define RINGD_DAEMON_ENGINE_ENGINE_CONTROL_H_

#include <functional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/rpc/admin.pb.h"
#include "proto/rpc/client.pb.h"

namespace ringd {

// The engine as seen from other threads. `token` is the session's: kUnauthenticated if no session has
// it.
//
// Thread safety: all methods from any thread; each posts to the engine thread and waits, with a
//   deadline of its own.
class EngineControl {
 public:
  virtual ~EngineControl() = default;

  // Blocks until all ranks have joined. `cancelled` is polled, so that a caller that went away is not
  // waited for.
  virtual absl::Status Join(absl::string_view token, const v1::JoinRequest& request,
                            v1::JoinReply* reply, const std::function<bool()>& cancelled) = 0;
  virtual absl::Status RegisterTensors(absl::string_view token,
                                       const v1::RegisterTensorsRequest& request,
                                       v1::RegisterTensorsReply* reply) = 0;
  virtual absl::Status DescribeMismatch(absl::string_view token,
                                        const v1::DescribeMismatchRequest& request,
                                        v1::DescribeMismatchReply* reply) = 0;
  virtual absl::Status Leave(absl::string_view token) = 0;

  virtual absl::Status GetStatus(v1::StatusReply* reply) = 0;
  virtual absl::Status ListJobs(const v1::ListJobsRequest& request, v1::JobsReply* reply) = 0;
  virtual absl::Status ListCommunicators(const v1::ListCommunicatorsRequest& request,
                                         v1::CommunicatorsReply* reply) = 0;
  virtual absl::Status ListQueues(const v1::ListQueuesRequest& request, v1::QueuesReply* reply) = 0;
  virtual absl::Status ReportExit(const v1::ReportExitRequest& request) = 0;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_ENGINE_ENGINE_CONTROL_H_
