// Keeps what was learned about jobs for the next job with the same tensors on the same nodes, also over a
// restart of ringd.
#ifndef RINGD_DAEMON_JOBS_PLAN_STORE_H_
#define RINGD_DAEMON_JOBS_PLAN_STORE_H_

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "daemon/jobs/membership.h"
#include "daemon/jobs/plan_file.h"
#include "daemon/schedule/kept_plan.h"
#include "proto/base/mutex.h"

namespace ringd {

// All is in memory; the file <folder>/plans.json is read once and replaced as a whole, by rename, after a
// change. What has not been used for longest goes when there is too much.
//
// Thread safety: any thread. Nothing but Open and the destructor touches the disk on the caller's thread:
//   a thread that lives only as long as there is something to write does.
// Invariant: the file is always complete, of some moment. A file that can't be understood is left alone
//   until there is something to write.
class PlanStore {
 public:
  static constexpr std::size_t kMaxPlans = 32;
  static constexpr std::size_t kMaxTensors = 50'000;  // of all plans; about 10 MB of file
  static constexpr std::size_t kMaxFileBytes = std::size_t{32} << 20;

  // Nothing in it, and nothing is written.
  PlanStore() = default;
  // Reads what there is; a file that can't be used is named in a warning, and the store begins empty. An
  // empty `folder` keeps nothing beyond this object.
  explicit PlanStore(std::string folder);
  // Waits until all is written.
  ~PlanStore();

  PlanStore(const PlanStore&) = delete;
  PlanStore& operator=(const PlanStore&) = delete;

  // The plans of these nodes, the one used last first.
  std::vector<std::shared_ptr<const KeptPlan>> Find(const std::string& nodes) const;
  // Keeps a plan instead of the one for the same nodes and tensors.
  void Put(const std::string& nodes, KeptPlan plan);

 private:
  void Write();
  void TrimLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string folder_;
  mutable Mutex mutex_;
  std::vector<StoredPlan> plans_ ABSL_GUARDED_BY(mutex_);  // the one used last first
  bool dirty_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool has_complained_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread writer_ ABSL_GUARDED_BY(mutex_);
};

// Who may share a plan: jobs of one user on the same nodes with as many ranks on each, in the same order.
std::string NodesKey(uid_t uid, const Membership& membership);

}  // namespace ringd

#endif  // RINGD_DAEMON_JOBS_PLAN_STORE_H_
