// What engines want to be kept, on its way into the store of plans.
#ifndef RINGD_DAEMON_SUPERVISOR_KEEP_QUEUE_H_
#define RINGD_DAEMON_SUPERVISOR_KEEP_QUEUE_H_

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "daemon/jobs/plans/plan_store.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/rpc/engine.pb.h"

namespace ringd {

// To read and merge a megabyte of it takes tens of milliseconds, for which no engine's heartbeat
// should wait. So a thread of its own does it, ringd-keeps: for one user after the other, and for a
// quarter of the time at most, since what is kept is also written to a file. A user who has more to
// be kept than may wait loses what comes then: the next job learns it again.
//
// Thread safety: any thread, but the destructor.
// Ownership: borrows the store.
class KeepQueue {
 public:
  // That wait. Each counts as kEntryBytes more.
  static constexpr std::size_t kMostBytesOfEngine = std::size_t{16} << 20;
  static constexpr std::size_t kMostBytesOfUser = std::size_t{32} << 20;
  static constexpr std::size_t kEntryBytes = std::size_t{4} << 10;
  // It rests so many times as long as it has worked.
  static constexpr int kRests = 3;

  // Hears what is wrong, in Add or on the thread: no sound engine would send that, and nothing of
  // it is kept.
  using Refuse = std::function<void(const absl::Status&)>;

  explicit KeepQueue(PlanStore* plans);
  // Merges what waits, without rests, and drops what it does not come to in kGoodbye.
  ~KeepQueue();
  KeepQueue(const KeepQueue&) = delete;
  KeepQueue& operator=(const KeepQueue&) = delete;

  // Takes it over, of the engine of this number and user. False: it was dropped, since too much
  // waits.
  bool Add(uid_t user, std::uint64_t engine, v1::EngineKeep keep, Refuse refuse)
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  static constexpr std::chrono::seconds kGoodbye{2};
  struct Entry {
    uid_t user = 0;
    std::uint64_t engine = 0;
    std::size_t bytes = 0;
    v1::EngineKeep keep;
    Refuse refuse;
  };
  struct User {
    std::deque<Entry> waiting;
    std::size_t bytes = 0;
    std::map<std::uint64_t, std::size_t> of_engine;
  };

  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits for one; nothing: the thread is to end.
  std::optional<Entry> Next() ABSL_LOCKS_EXCLUDED(mutex_);
  // That of the user who is next.
  Entry TakeLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Merge(const Entry& entry);

  PlanStore* const plans_;
  Mutex mutex_;
  CondVar changed_;
  std::map<uid_t, User> users_ ABSL_GUARDED_BY(mutex_);  // with something that waits
  uid_t last_user_ ABSL_GUARDED_BY(mutex_) = 0;          // whose turn was the last one
  Clock::time_point rests_until_ ABSL_GUARDED_BY(mutex_);
  std::optional<Clock::time_point> end_at_ ABSL_GUARDED_BY(mutex_);  // at the latest
  std::thread thread_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SUPERVISOR_KEEP_QUEUE_H_
