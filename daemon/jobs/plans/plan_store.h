// Keeps what was learned about jobs for the next job with the same tensors on the same nodes, and
// about the links and all-reduces between nodes for all jobs on them, also over a restart of ringd.
#ifndef RINGD_DAEMON_JOBS_PLANS_PLAN_STORE_H_
#define RINGD_DAEMON_JOBS_PLANS_PLAN_STORE_H_

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "daemon/jobs/membership/membership.h"
#include "daemon/jobs/plans/plan_file.h"
#include "daemon/schedule/planning/kept_plan.h"
#include "daemon/schedule/routes/link_matrix.h"
#include "proto/base/mutex.h"

namespace ringd {

// What is known of the links between some nodes.
struct KnownLinks {
  LinkMatrix links;
  std::int64_t unix_seconds = 0;  // when the oldest of them was measured
};

// Hears what is new in a store that somebody else keeps.
//
// Thread safety: called on the thread that has brought it, with no lock held. May not block.
class PlanKeeper {
 public:
  virtual ~PlanKeeper() = default;

  // These entries are new, or stand for those of the same nodes (and tensors, of a plan).
  virtual void Keep(KeptState changed) = 0;
  // As PlanStore::NoteUnmeasured.
  virtual void KeepUnmeasured(const std::vector<std::string>& names, std::int64_t unix_seconds) = 0;
};

// All is in memory. Of a store with a folder the file <folder>/plans.json is read once and replaced
// as a whole, by rename of one that is on the disk, after a change. What has not been used for
// longest goes when there is too much.
//
// Thread safety: any thread. Nothing but Open and the destructor touches the disk on the caller's
//   thread: a thread that lives only as long as there is something to write does.
// Invariant: the file is always complete, of some moment, also after the machine has lost its
//   power. A file that can't be understood is left alone until there is something to write.
class PlanStore {
 public:
  static constexpr std::size_t kMaxPlans = 32;
  static constexpr std::size_t kMaxTensors = 50'000;  // of all plans; about 10 MB of file
  static constexpr std::size_t kMaxFileBytes = std::size_t{32} << 20;
  static constexpr std::size_t kMaxLinks = 16'384;
  static constexpr std::size_t kMaxTrials = 256;
  // Older ones are measured anew: cables and switches change, and another job may have had its part
  // of the lines when they were measured.
  static constexpr std::chrono::seconds kMeasuredLasts = std::chrono::hours(24);
  static constexpr std::chrono::seconds kRetryAfter = std::chrono::minutes(10);

  // Nothing in it, and nothing is written.
  PlanStore() = default;
  // Reads what there is; a file that can't be used is named in a warning, and the store begins
  // empty. Of a file with entries that can't be, the others are used; a warning has their number
  // and what is wrong with the first. An empty `folder` keeps nothing beyond this object.
  explicit PlanStore(std::string folder);
  // An engine's: begins with what its supervisor knows, and tells `keeper`, which must outlive it,
  // what comes to be known.
  PlanStore(KeptState initial, PlanKeeper* keeper);
  // Waits until all is written.
  ~PlanStore();

  PlanStore(const PlanStore&) = delete;
  PlanStore& operator=(const PlanStore&) = delete;

  // The plans of these nodes, the one used last first.
  std::vector<std::shared_ptr<const KeptPlan>> Find(const std::string& nodes) const;
  // Keeps a plan instead of the one for the same nodes and tensors.
  void Put(const std::string& nodes, KeptPlan plan);

  // The links between nodes of these names (no two are equal), from and to each; nothing if one of
  // them was not measured in the last kMeasuredLasts. `unix_seconds`: the present time.
  std::optional<KnownLinks> FindLinks(const std::vector<std::string>& names,
                                      std::int64_t unix_seconds) const;
  void PutLinks(const std::vector<std::string>& names, const LinkMatrix& links,
                std::int64_t unix_seconds);
  // The last trial of small all-reduces between nodes of these names in this order; nothing if it
  // is older than kMeasuredLasts.
  std::optional<StoredTrial> FindTrial(const std::vector<std::string>& names,
                                       std::int64_t unix_seconds) const;
  void PutTrial(StoredTrial trial);
  // Measuring something between these nodes has failed: another try costs the next job time, and
  // should wait for kRetryAfter. Forgotten with this object.
  void NoteUnmeasured(const std::vector<std::string>& names, std::int64_t unix_seconds);
  // What was noted so, and when.
  std::map<std::vector<std::string>, std::int64_t> Unmeasured() const;
  bool IsWorthMeasuring(const std::vector<std::string>& names, std::int64_t unix_seconds) const;

  // What the engine of a user's job may know: his plans, all links and trials, or as much of that
  // as is formatted in kMostPassedBytes.
  KeptState ForUser(uid_t uid) const;
  // Takes over what such an engine has told: input. Plans of other users are left out.
  void Merge(KeptState changed, uid_t uid);

 private:
  void Write();
  void ReplaceLocked(StoredPlan plan) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReplaceLocked(StoredTrial trial) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReplaceLocked(std::vector<StoredLink> links) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void KeepLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TrimLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string folder_;
  PlanKeeper* const keeper_ = nullptr;
  mutable Mutex mutex_;
  KeptState state_ ABSL_GUARDED_BY(mutex_);
  std::map<std::vector<std::string>, std::int64_t> unmeasured_
      ABSL_GUARDED_BY(mutex_);  // since when
  bool dirty_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool has_complained_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread writer_ ABSL_GUARDED_BY(mutex_);
};

// Who may share a plan: jobs of one user on the same nodes with as many ranks on each, in the same
// order. The key begins with the user.
std::string NodesKey(uid_t uid, const Membership& membership);
bool IsKeyOf(uid_t uid, absl::string_view nodes_key);

}  // namespace ringd

#endif  // RINGD_DAEMON_JOBS_PLANS_PLAN_STORE_H_
