// The engines of this node: which one serves which job, who stands ready, and what follows when one
// ends.
#ifndef RINGD_DAEMON_SUPERVISOR_ENGINES_H_
#define RINGD_DAEMON_SUPERVISOR_ENGINES_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "daemon/channel/channel_loop.h"
#include "daemon/config/config.h"
#include "daemon/engine/call_thread.h"
#include "daemon/jobs/history/job_history.h"
#include "daemon/jobs/plans/plan_store.h"
#include "daemon/sessions/session_resources.h"
#include "daemon/supervisor/engine_client.h"
#include "daemon/supervisor/engine_logs.h"
#include "daemon/supervisor/engine_network.h"
#include "daemon/supervisor/engine_program.h"
#include "daemon/supervisor/engine_watchdog.h"
#include "daemon/supervisor/job_generations.h"
#include "daemon/supervisor/keep_queue.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/base/waking_epoll.h"

namespace ringd {

struct EnginesOptions {
  Config config;  // complete (ResolveNetwork)
  std::string version;
  std::shared_ptr<const EngineProgram> program;  // never null
  std::string peer_address;
  std::set<std::string> own_addresses;
  std::string wire_address;      // see EngineStart
  std::string exchange_address;  // the same
  bool has_cluster_key = false;
};

// One engine serves one job id of one user, however many jobs of that id follow each other before
// it has nothing to do. Then it ends. Two more stand ready.
//
// One thread, ringd-engines, starts, watches, ends and reaps them; it is the one that calls Start,
// and does not give way to threads that carry gradients, since engines inherit that from it.
//
// Thread safety: any thread, but Start and Stop one.
// Ownership: of the engines. Borrows network and plans.
class Engines final : private EngineOwner {
 public:
  // Engines that stand ready.
  static constexpr std::size_t kReady = 2;

  //   What the kernel says; that no engine can be started.
  static absl::StatusOr<std::unique_ptr<Engines>> Start(EnginesOptions options,
                                                        NodeNetwork* network, PlanStore* plans,
                                                        IsolatedExecutor* isolated);
  ~Engines() override;  // Stop

  // Hands a session to the engine of this job of its user, which is started if there is none.
  // `weight`: of the job.
  //   kUnavailable: ringd is stopping. kFailedPrecondition: it drains. kResourceExhausted: there
  //   are as many engines as there may be. Then `session` is as before. Else what the kernel says,
  //   and it may have gone.
  absl::StatusOr<std::shared_ptr<EngineClient>> Give(std::unique_ptr<SessionResources>& session,
                                                     const std::string& job_id,
                                                     std::uint32_t weight)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // The engine that has the session of this token; null: none.
  std::shared_ptr<EngineClient> Find(absl::string_view token) ABSL_LOCKS_EXCLUDED(mutex_);
  // Those that serve a job, in the order in which they began.
  std::vector<std::shared_ptr<EngineClient>> Serving() ABSL_LOCKS_EXCLUDED(mutex_);
  // The engine of this job, if there is one, tells its ranks why another one was refused.
  void NoteTurnedAway(uid_t uid, const std::string& job_id, const std::string& why)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // True if this process is an engine of ours, or was one that has ended after `since`, which is
  // less than ten minutes ago.
  bool IsEngine(pid_t pid, Clock::time_point since = Clock::time_point::max())
      ABSL_LOCKS_EXCLUDED(mutex_);

  // What follows is for engines to come, and for those that there are as far as it may change
  // (Setting::reloaded).
  void Reload(const Config& config) ABSL_LOCKS_EXCLUDED(mutex_);
  // For engines to come: as in the options.
  void UseAddresses(const std::string& wire_address, const std::string& exchange_address)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // While it drains, new jobs are refused here and at the door, at one moment: a join comes before
  // it, and its engine is told of the drain, or after it.
  void SetDraining(bool draining) ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends all, which tell their ranks; kills what is left after a few seconds, and does not wait for
  // what the kernel does not let go of.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

  const EngineProgram& program() const noexcept { return *program_; }
  std::size_t sessions() ABSL_LOCKS_EXCLUDED(mutex_);
  std::uint64_t sessions_ended_for_cause() const noexcept {
    return ended_for_cause_.load(std::memory_order_relaxed);
  }
  // Grows several times a second while the thread that watches is alive.
  std::uint64_t heartbeat() const noexcept { return heartbeat_.load(std::memory_order_relaxed); }

  // Lets `take` see jobs that have ended, the last first, until it returns false. It must be quick.
  void ForEachEnded(const std::function<bool(const v1::Job&)>& take) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  using Key = std::pair<uid_t, std::string>;
  using Client = std::shared_ptr<EngineClient>;
  // Of the thread that watches.
  struct Watched {
    Client engine;
    std::uint64_t log = 0;
    bool spawned = false;
    bool log_has_user = false;
    std::optional<Clock::time_point> unused_since;
    Clock::time_point next_count;
    std::size_t threads = 0;
    EngineWatchdog watchdog;
    Clock::time_point kill_at = Clock::time_point::max();
    Clock::time_point cut_at = Clock::time_point::max();
  };

  Engines(EnginesOptions options, NodeNetwork* network, PlanStore* plans,
          IsolatedExecutor* isolated, WakingEpoll epoll);

  void OnSessionEnded(EngineClient& engine, const std::string& token, bool for_cause) override;
  void OnGeneration(EngineClient& engine, std::uint32_t next) override;
  void OnJobEnded(EngineClient& engine, const v1::EngineJobEnded& ended) override;
  void OnKeep(EngineClient& engine, v1::EngineKeep keep) override;
  void OnIdle(EngineClient& engine, std::uint64_t sessions) override;
  void OnEnding(EngineClient& engine) override;

  absl::StatusOr<Client> MakeLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What is remembered for the user's jobs. Takes milliseconds where that is much.
  std::string KeptState(uid_t uid) const;
  // Whether sessions are given to engines now.
  absl::Status CheckTakesLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Client> GiveLocked(Client engine, std::unique_ptr<SessionResources>& session)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // One for this job: of those that stand ready, or made now.
  absl::StatusOr<Client> BeginLocked(uid_t uid, const std::string& job_id, std::uint32_t weight,
                                     std::string kept_state) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // ---- the thread that watches ----
  void Run();
  void Refill() ABSL_LOCKS_EXCLUDED(mutex_);
  void Look(Watched& watched, Clock::time_point now) ABSL_LOCKS_EXCLUDED(mutex_);
  void LookAtLife(Watched& watched, Clock::time_point now);
  // Engines say themselves that they have nothing to do; one that a user has taken over may not.
  void LookForUse(Watched& watched, Clock::time_point now) ABSL_LOCKS_EXCLUDED(mutex_);
  void CountThreads(Watched& watched, Clock::time_point now);
  // True: it has ended or is stuck, and all is done about it.
  bool Settle(Watched& watched, Clock::time_point now) ABSL_LOCKS_EXCLUDED(mutex_);
  void Bury(Watched& watched, const std::string& how) ABSL_LOCKS_EXCLUDED(mutex_);
  static void GiveBack(EngineClient::Place place);
  void ReapStuck() ABSL_LOCKS_EXCLUDED(mutex_);
  // Of one that has ended.
  void ForgetPidLocked(pid_t pid) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // From now on nobody gets this engine, which has ended. True if it served a job.
  bool TakeLeave(const Client& engine) ABSL_LOCKS_EXCLUDED(mutex_);

  NodeNetwork* const network_;
  PlanStore* const plans_;
  IsolatedExecutor* const isolated_;
  const WakingEpoll epoll_;
  const std::shared_ptr<const EngineProgram> program_;
  std::unique_ptr<EngineLogs> logs_;
  std::unique_ptr<LineRoster> roster_;  // guarded by mutex_, as are its slots
  std::atomic<std::uint64_t> heartbeat_{0};
  std::atomic<std::uint64_t> ended_for_cause_{0};
  CallThread calls_;
  std::unique_ptr<KeepQueue> keeps_;  // refuses what engines of ours have sent

  Mutex mutex_;
  CondVar changed_;
  EnginesOptions options_ ABSL_GUARDED_BY(mutex_);
  EngineArguments arguments_ ABSL_GUARDED_BY(mutex_);
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;  // the thread shall end
  std::uint64_t last_number_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint32_t next_communicator_ ABSL_GUARDED_BY(mutex_) = 1;
  std::vector<Client> ready_ ABSL_GUARDED_BY(mutex_);
  Clock::time_point begun_at_ ABSL_GUARDED_BY(mutex_);    // when the last one got its job
  std::map<Key, Client> by_job_ ABSL_GUARDED_BY(mutex_);  // that take sessions
  std::map<std::uint64_t, Client> serving_ ABSL_GUARDED_BY(mutex_);  // by number; also ending ones
  std::vector<Client> unwatched_ ABSL_GUARDED_BY(mutex_);  // made, and not seen by the thread yet
  std::unordered_map<std::string, Client> tokens_ ABSL_GUARDED_BY(mutex_);
  UserAccounts accounts_ ABSL_GUARDED_BY(mutex_);
  JobGenerations generations_ ABSL_GUARDED_BY(mutex_);
  JobHistory history_ ABSL_GUARDED_BY(mutex_);
  std::set<pid_t> pids_ ABSL_GUARDED_BY(mutex_);
  std::map<pid_t, Clock::time_point> ended_pids_ ABSL_GUARDED_BY(mutex_);  // when, at the latest

  // Buried, and not reaped yet. What it has of the node counts for as long.
  struct Stuck {
    Client engine;
    EngineClient::Place place;  // without a network; guarded by mutex_
    std::size_t threads = 0;
  };

  // The thread's.
  std::map<std::uint64_t, Watched> watched_;  // by number
  std::vector<Stuck> stuck_;
  Clock::time_point refill_at_;  // not before: starting one has failed
  Clock::duration refill_pause_{0};

  std::unique_ptr<ChannelLoop> loop_;  // the first to go: it calls us
  std::thread thread_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SUPERVISOR_ENGINES_H_
