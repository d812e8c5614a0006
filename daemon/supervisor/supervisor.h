// What stands between those who call and the engine that serves their job.
#ifndef RINGD_DAEMON_SUPERVISOR_SUPERVISOR_H_
#define RINGD_DAEMON_SUPERVISOR_SUPERVISOR_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "daemon/engine/engine.h"
#include "daemon/engine/engine_control.h"
#include "daemon/gpu/gpu_finder.h"
#include "daemon/supervisor/lobby.h"

namespace ringd {

// What is about the node and no job is answered here, too. A session belongs to the lobby until its
// trainer joins, and to the engine from then on, also if the join is refused. Calls that need a job
// are answered here while there is none.
//
// Thread safety: as EngineControl.
// Ownership: borrows all three. The finder is stopped before the engine and may tell those who wait
//   by way of it.
class Supervisor final : public EngineControl {
 public:
  // `gpus` may be null: nothing is known of GPUs.
  Supervisor(Lobby* lobby, GpuFinder* gpus, Engine* engine)
      : lobby_(lobby), gpus_(gpus), engine_(engine) {}

  [[nodiscard]] std::function<void()> Join(const Caller& caller, absl::string_view token,
                                           const v1::JoinRequest& request,
                                           Answer<v1::JoinReply> answer) override;
  void RegisterTensors(const Caller& caller, absl::string_view token,
                       const v1::RegisterTensorsRequest& request,
                       Answer<v1::RegisterTensorsReply> answer) override;
  void UnregisterTensors(const Caller& caller, absl::string_view token,
                         const v1::UnregisterTensorsRequest& request,
                         Answer<v1::UnregisterTensorsReply> answer) override;
  void DescribeMismatch(const Caller& caller, absl::string_view token,
                        const v1::DescribeMismatchRequest& request,
                        Answer<v1::DescribeMismatchReply> answer) override;
  void CreateCommunicator(const Caller& caller, absl::string_view token,
                          const v1::CreateCommunicatorRequest& request,
                          Answer<v1::CreateCommunicatorReply> answer) override;
  void DestroyCommunicator(const Caller& caller, absl::string_view token,
                           const v1::DestroyCommunicatorRequest& request,
                           Answer<v1::DestroyCommunicatorReply> answer) override;
  void Leave(const Caller& caller, absl::string_view token, Answer<v1::LeaveReply> answer) override;
  void GetStatus(const Caller& caller, Answer<v1::StatusReply> answer) override;
  void GetGpus(const Caller& caller, Answer<v1::GpusReply> answer) override;
  void ListJobs(const Caller& caller, const v1::ListJobsRequest& request,
                Answer<v1::JobsReply> answer) override;
  void ListCommunicators(const Caller& caller, const v1::ListCommunicatorsRequest& request,
                         Answer<v1::CommunicatorsReply> answer) override;
  void ListQueues(const Caller& caller, const v1::ListQueuesRequest& request,
                  Answer<v1::QueuesReply> answer) override;
  void TraceJob(const Caller& caller, const v1::TraceRequest& request,
                Answer<v1::TraceReply> answer) override;
  void ReportExit(const Caller& caller, const v1::ReportExitRequest& request,
                  Answer<v1::ReportExitReply> answer) override;

 private:
  // `gpus`: in words.
  void AskForStatus(const Caller& caller, std::string gpus, Answer<v1::StatusReply> answer);

  Lobby* const lobby_;
  GpuFinder* const gpus_;
  Engine* const engine_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SUPERVISOR_SUPERVISOR_H_
