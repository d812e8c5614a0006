// What stands between those who call and the engines that serve their jobs.
#ifndef RINGD_DAEMON_SUPERVISOR_SUPERVISOR_H_
#define RINGD_DAEMON_SUPERVISOR_SUPERVISOR_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "daemon/config/config.h"
#include "daemon/gpu/gpu_finder.h"
#include "daemon/rpc/node_calls.h"
#include "daemon/supervisor/engines.h"
#include "daemon/supervisor/lobby.h"
#include "daemon/supervisor/node_drain.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"

namespace ringd {

struct SupervisorOptions {
  Config config;  // complete (ResolveNetwork)
  std::string version;
  std::string peer_address;  // host:port on which other ringds reach this one
  std::string cluster_key;   // empty: there is none
  std::string config_file;   // for display; empty: none
  std::string backend;       // the transport's name, "none" without one
};

// What is about the node and no job is answered here. A session belongs to the lobby until its
// trainer joins a job, and to the job's engine from then on: calls that bring its token go there,
// as they came. A join that is refused here leaves its session in the lobby. What is asked of all
// jobs is asked of all engines, and put together.
//
// Thread safety: as NodeCalls; the other methods too.
// Ownership: borrows all four.
class Supervisor final : public NodeCalls {
 public:
  // `gpus` may be null: nothing is known of GPUs.
  Supervisor(SupervisorOptions options, Lobby* lobby, GpuFinder* gpus, Engines* engines,
             NodeDrain* drain);

  // As Engine::Reload.
  void Reload(const Config& config) ABSL_LOCKS_EXCLUDED(mutex_);
  // What keeps interfaces from carrying data, in words; empty: nothing.
  void TellOfLinks(const std::string& problems) ABSL_LOCKS_EXCLUDED(mutex_);
  void CountRefusedAttach() noexcept { attaches_refused_.fetch_add(1, std::memory_order_relaxed); }

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
  void OpenDevice(const Caller& caller, absl::string_view token,
                  const v1::OpenDeviceRequest& request,
                  Answer<v1::OpenDeviceReply> answer) override;
  void AgreeOnDevices(const Caller& caller, absl::string_view token,
                      const v1::AgreeOnDevicesRequest& request,
                      Answer<v1::AgreeOnDevicesReply> answer) override;
  void Leave(const Caller& caller, absl::string_view token, const v1::LeaveRequest& request,
             Answer<v1::LeaveReply> answer) override;
  void GetStatus(const Caller& caller, Answer<v1::StatusReply> answer) override;
  void GetGpus(const Caller& caller, Answer<v1::GpusReply> answer) override;
  void Drain(const Caller& caller, const v1::DrainRequest& request,
             Answer<v1::DrainReply> answer) override;
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

  // Of trainers that are attached; none of them is left out while it is handed over.
  std::uint32_t CountSessions();

 private:
  // `session`'s, and moves it to its engine; what is wrong with the request.
  absl::StatusOr<std::shared_ptr<EngineClient>> HandOver(absl::string_view token,
                                                         const v1::JoinRequest& request,
                                                         std::string& job_key)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // A session that was taken from the lobby goes to its engine, or back.
  absl::StatusOr<std::shared_ptr<EngineClient>> HandOver(std::unique_ptr<SessionResources> session,
                                                         const v1::JoinRequest& request,
                                                         std::string& job_key)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // What is wrong with the request, and the key of its job's connections to other nodes.
  absl::Status CheckAndFindKey(const v1::JoinRequest& request, uid_t uid, std::string& job_key)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // To the engine that has the session.
  template <typename Request, typename Reply>
  void Forward(v1::EngineCallKind kind, const Caller& caller, absl::string_view token,
               const Request& request, Answer<Reply> answer);
  // Of all engines; `also`, if any, adds to it what no engine knows.
  template <typename Request, typename Reply>
  void List(v1::EngineCallKind kind, const Caller& caller, const Request& request,
            Answer<Reply> answer, const std::function<void(Reply*)>& also = nullptr);
  std::uint32_t CountJobs();
  // `gpus`: in words.
  v1::StatusReply DescribeStatus(const Caller& caller, const std::string& gpus)
      ABSL_LOCKS_EXCLUDED(mutex_);

  Lobby* const lobby_;
  GpuFinder* const gpus_;
  Engines* const engines_;
  NodeDrain* const drain_;
  const Clock::time_point started_ = Clock::now();
  std::atomic<std::uint64_t> attaches_refused_{0};
  Mutex mutex_;
  SupervisorOptions options_ ABSL_GUARDED_BY(mutex_);
  std::string link_problems_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SUPERVISOR_SUPERVISOR_H_
