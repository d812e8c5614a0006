#include "daemon/jobs/exit_report.h"

#include "proto/door/hmac.h"

namespace ringd {

absl::Status DeliverExitReport(const std::list<std::unique_ptr<Job>>& jobs,
                               const v1::ReportExitRequest& request,
                               const std::function<bool(const Job&)>& may_know) {
  absl::Status nobody = absl::NotFoundError("no such rank of such a job here");
  for (const auto& job : jobs) {
    // Without a secret nobody can show that it is the job's launcher.
    if (job->options().job_id != request.job_id() || job->options().secret.empty()) continue;
    if (!EqualInConstantTime(job->options().secret, request.secret())) {
      if (may_know(*job)) nobody = absl::UnauthenticatedError("the job secret is wrong");
      continue;
    }
    const ProcessExit exit{request.exit_code(), request.signal()};
    if (job->OnExitReport(Rank(request.rank()), request.pid(), exit)) return absl::OkStatus();
  }
  return nobody;
}

}  // namespace ringd
