// What stands between those who call and the engine that serves their job.
#ifndef RINGD_DAEMON_SUPERVISOR_SUPERVISOR_H_
#define RINGD_DAEMON_SUPERVISOR_SUPERVISOR_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "daemon/engine/engine.h"
#include "daemon/engine/engine_control.h"
#include "daemon/gpu/gpu_finder.h"
#include "daemon/supervisor/engine_record.h"
#include "daemon/supervisor/lobby.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"

namespace ringd {

struct SupervisorOptions {
  Config config;             // node_name and peer_address as resolved
  std::string version;       // of this ringd
  std::string peer_address;  // host:port on which other ringds reach this one
  std::string backend;       // for display, as config_file
  std::string config_file;   // empty: none
  std::string cluster_key;   // what only ringds of this cluster know; empty: there is none
};

// What is about the node and no job is answered here, too. A session belongs to the lobby until its
// trainer joins, and to the engine from then on; a join that is refused without asking the engine
// leaves it where it is. Calls that need a job are answered here while there is none.
//
// Thread safety: as EngineControl.
// Ownership: borrows all four. The finder is stopped before the engine and may tell those who wait
//   by way of it.
class Supervisor final : public EngineControl {
 public:
  // `gpus` may be null: nothing is known of GPUs.
  Supervisor(SupervisorOptions options, Lobby* lobby, GpuFinder* gpus, Engine* engine,
             EngineRecord* record);

  // The settings that may change.
  void Reload(const Config& config);
  // Refuses joins from now on.
  void Drain();
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
  absl::Status MayJoin(const v1::JoinRequest& request) ABSL_LOCKS_EXCLUDED(mutex_);
  // `gpus`: in words.
  v1::StatusReply DescribeStatus(const Caller& caller, const std::string& gpus)
      ABSL_LOCKS_EXCLUDED(mutex_);

  const Clock::time_point started_ = Clock::now();
  const std::string version_;
  const std::string peer_address_;
  const std::string backend_;
  const std::string config_file_;
  const std::string cluster_key_;
  Lobby* const lobby_;
  GpuFinder* const gpus_;
  Engine* const engine_;
  EngineRecord* const record_;
  std::atomic<std::uint64_t> attaches_refused_{0};
  Mutex mutex_;
  Config config_ ABSL_GUARDED_BY(mutex_);
  std::optional<Clock::time_point> draining_since_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SUPERVISOR_SUPERVISOR_H_
