// What the gRPC services ask of their node's ringd.
#ifndef RINGD_DAEMON_RPC_NODE_CALLS_H_
#define RINGD_DAEMON_RPC_NODE_CALLS_H_

#include <sys/types.h>

#include <compare>
#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/rpc/admin.pb.h"
#include "proto/rpc/client.pb.h"

namespace ringd {

// Of the messages in proto/rpc/admin.proto.
inline constexpr std::uint32_t kAdminSchemaVersion = 1;

// Who asks: the kernel's word on the process at the other end of the connection.
struct Caller {
  uid_t uid = 0;
  bool is_operator = false;  // may see other users' jobs

  friend auto operator<=>(const Caller&, const Caller&) = default;
};

// What is answered to a trainer's call that needs a job and comes before its Join.
inline absl::Status NotJoined() { return absl::FailedPreconditionError("join a job first"); }

// What is answered to a Join while ringd drains.
inline absl::Status TakesNoNewJobs(absl::string_view node_name) {
  return absl::FailedPreconditionError(
      absl::StrCat("ringd on ", node_name, " is draining: it takes no new jobs"));
}

// Takes the answer to a call; the reply counts only if the status is OK. Runs exactly once, perhaps
// before the call has returned; in an engine not on its progress thread.
template <typename Reply>
using Answer = std::function<void(const absl::Status&, Reply)>;

// A node's ringd as its gRPC services see it: the supervisor, which answers some calls itself and
// hands others to engines. `token` is the session's: kUnauthenticated if no session has it.
//
// Thread safety: all methods from any thread. None waits: the answer comes later, with an
//   error if the engine that was asked gives none.
// Ownership: requests and texts are read before the method returns; nobody needs to keep them.
class NodeCalls {
 public:
  virtual ~NodeCalls() = default;

  // Answered when all ranks have joined. The function that is returned says that the caller has
  // gone: then the answer is kCancelled, unless there has been one. It may be called from any
  // thread, as long as this object lives.
  [[nodiscard]] virtual std::function<void()> Join(const Caller& caller, absl::string_view token,
                                                   const v1::JoinRequest& request,
                                                   Answer<v1::JoinReply> answer) = 0;
  virtual void RegisterTensors(const Caller& caller, absl::string_view token,
                               const v1::RegisterTensorsRequest& request,
                               Answer<v1::RegisterTensorsReply> answer) = 0;
  virtual void UnregisterTensors(const Caller& caller, absl::string_view token,
                                 const v1::UnregisterTensorsRequest& request,
                                 Answer<v1::UnregisterTensorsReply> answer) = 0;
  virtual void DescribeMismatch(const Caller& caller, absl::string_view token,
                                const v1::DescribeMismatchRequest& request,
                                Answer<v1::DescribeMismatchReply> answer) = 0;
  // Answered when all of its ranks have asked.
  virtual void CreateCommunicator(const Caller& caller, absl::string_view token,
                                  const v1::CreateCommunicatorRequest& request,
                                  Answer<v1::CreateCommunicatorReply> answer) = 0;
  virtual void DestroyCommunicator(const Caller& caller, absl::string_view token,
                                   const v1::DestroyCommunicatorRequest& request,
                                   Answer<v1::DestroyCommunicatorReply> answer) = 0;
  // Answered when the slab is there and its descriptor on its way to the trainer.
  virtual void OpenDevice(const Caller& caller, absl::string_view token,
                          const v1::OpenDeviceRequest& request,
                          Answer<v1::OpenDeviceReply> answer) = 0;
  // Answered when enough ranks of the communicator have opened a GPU, or the time is over.
  virtual void AgreeOnDevices(const Caller& caller, absl::string_view token,
                              const v1::AgreeOnDevicesRequest& request,
                              Answer<v1::AgreeOnDevicesReply> answer) = 0;
  virtual void Leave(const Caller& caller, absl::string_view token, const v1::LeaveRequest& request,
                     Answer<v1::LeaveReply> answer) = 0;

  virtual void GetStatus(const Caller& caller, Answer<v1::StatusReply> answer) = 0;
  virtual void GetGpus(const Caller& caller, Answer<v1::GpusReply> answer) = 0;
  virtual void Drain(const Caller& caller, const v1::DrainRequest& request,
                     Answer<v1::DrainReply> answer) = 0;
  virtual void ListJobs(const Caller& caller, const v1::ListJobsRequest& request,
                        Answer<v1::JobsReply> answer) = 0;
  virtual void ListCommunicators(const Caller& caller, const v1::ListCommunicatorsRequest& request,
                                 Answer<v1::CommunicatorsReply> answer) = 0;
  virtual void ListQueues(const Caller& caller, const v1::ListQueuesRequest& request,
                          Answer<v1::QueuesReply> answer) = 0;
  virtual void TraceJob(const Caller& caller, const v1::TraceRequest& request,
                        Answer<v1::TraceReply> answer) = 0;
  virtual void ReportExit(const Caller& caller, const v1::ReportExitRequest& request,
                          Answer<v1::ReportExitReply> answer) = 0;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_RPC_NODE_CALLS_H_
