// What the engine has told, for whoever asks about this node.
#ifndef RINGD_DAEMON_SUPERVISOR_ENGINE_RECORD_H_
#define RINGD_DAEMON_SUPERVISOR_ENGINE_RECORD_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/base/thread_annotations.h"
#include "daemon/engine/engine_control.h"
#include "daemon/engine/engine_listener.h"
#include "daemon/jobs/history/job_history.h"
#include "proto/base/mutex.h"
#include "proto/rpc/admin.pb.h"

namespace ringd {

// Thread safety: any thread.
// Ownership: outlives the engine that tells it.
class EngineRecord final : public EngineListener {
 public:
  explicit EngineRecord(std::size_t jobs_per_user) : history_(jobs_per_user) {}

  void OnSessionEnded(SessionId session, bool for_cause) override;
  void OnJobs(std::uint32_t jobs) override;
  void OnJobEnded(const v1::Job& job, std::uint32_t next_generation) override;
  void OnIdle(std::uint64_t /*sessions*/) override {}

  // The engine is given one.
  void AddSession();
  void SetHistoryLimit(std::size_t jobs_per_user);

  // Sets how many sessions and jobs the engine has, and how many sessions it has ended for cause.
  void Describe(v1::StatusReply& reply);
  // Adds the jobs that have ended, the last first: what the caller may see, of this id if one is
  // named. Those of others count as hidden.
  void AddEnded(const Caller& caller, const std::string& job_id, v1::JobsReply& reply);

 private:
  Mutex mutex_;
  JobHistory history_ ABSL_GUARDED_BY(mutex_);
  std::uint32_t sessions_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint32_t jobs_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t ended_for_cause_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SUPERVISOR_ENGINE_RECORD_H_
