// Takes a launcher's word on how a rank ended to the job that it means.
#ifndef RINGD_DAEMON_JOBS_EXIT_REPORT_H_
#define RINGD_DAEMON_JOBS_EXIT_REPORT_H_

#include <functional>
#include <list>
#include <memory>

#include "absl/status/status.h"
#include "daemon/jobs/job.h"
#include "proto/rpc/admin.pb.h"

namespace ringd {

// Several users' jobs may have one id, and so may a job and its former incarnation: the report is
// for one that has both its secret and its rank. `may_know` says of which jobs the reporter may
// hear that they exist.
//   kUnauthenticated: there is such a job, with another secret. kNotFound: there is none.
absl::Status DeliverExitReport(const std::list<std::unique_ptr<Job>>& jobs,
                               const v1::ReportExitRequest& request,
                               const std::function<bool(const Job&)>& may_know);

}  // namespace ringd

#endif  // RINGD_DAEMON_JOBS_EXIT_REPORT_H_
