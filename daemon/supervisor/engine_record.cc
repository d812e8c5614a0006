#include "daemon/supervisor/engine_record.h"

namespace ringd {

void EngineRecord::OnSessionEnded(SessionId /*session*/, bool for_cause) {
  MutexLock lock(mutex_);
  --sessions_;
  if (for_cause) ++ended_for_cause_;
}

void EngineRecord::OnJobs(std::uint32_t jobs) {
  MutexLock lock(mutex_);
  jobs_ = jobs;
}

void EngineRecord::OnJobEnded(const v1::Job& job, std::uint32_t /*next_generation*/) {
  MutexLock lock(mutex_);
  history_.Add(job);
}

void EngineRecord::AddSession() {
  MutexLock lock(mutex_);
  ++sessions_;
}

void EngineRecord::SetHistoryLimit(std::size_t jobs_per_user) {
  MutexLock lock(mutex_);
  history_.SetLimit(jobs_per_user);
}

void EngineRecord::Describe(v1::StatusReply& reply) {
  MutexLock lock(mutex_);
  reply.set_sessions(sessions_);
  reply.set_jobs(jobs_);
  reply.set_sessions_ended_for_cause(ended_for_cause_);
}

void EngineRecord::AddEnded(const Caller& caller, const std::string& job_id, v1::JobsReply& reply) {
  MutexLock lock(mutex_);
  std::uint64_t before = UINT64_MAX;
  while (const JobHistory::Entry* entry = history_.Before(before)) {
    before = entry->number;
    if (!caller.is_operator && caller.uid != entry->job.uid()) {
      // Whatever its name is: that would tell whether there is one of that name.
      reply.set_hidden_jobs(reply.hidden_jobs() + 1);
    } else if (job_id.empty() || job_id == entry->job.job_id()) {
      *reply.add_jobs() = entry->job;
    }
  }
}

}  // namespace ringd
