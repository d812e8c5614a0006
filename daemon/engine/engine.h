// The thread that does a job's work on this node: one loop over its sessions, jobs, coordinators
// and network.
//
// Everything that decides or moves data lives on this thread, so none of it needs a lock. Other
// threads (the channel's, the streams') post commands; the call thread hands answers back.
#ifndef RINGD_DAEMON_ENGINE_ENGINE_H_
#define RINGD_DAEMON_ENGINE_ENGINE_H_

#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "backends/backend.h"
#include "daemon/config/config.h"
#include "daemon/engine/call_thread.h"
#include "daemon/engine/engine_activity.h"
#include "daemon/engine/engine_listener.h"
#include "daemon/engine/event_poll.h"
#include "daemon/engine/link_switch.h"
#include "daemon/engine/pending_call.h"
#include "daemon/engine/sliced_queue.h"
#include "daemon/engine/spin_habit.h"
#include "daemon/engine/standstill.h"
#include "daemon/execution/reducer_pool.h"
#include "daemon/jobs/coordinator/job_coordinator.h"
#include "daemon/jobs/job.h"
#include "daemon/jobs/plans/plan_store.h"
#include "daemon/lanes/device/device_room.h"
#include "daemon/lanes/rank_exchange/rank_exchange_sockets.h"
#include "daemon/logging/log_limiter.h"
#include "daemon/peers/peer_network.h"
#include "daemon/rpc/node_calls.h"
#include "daemon/sessions/isolated_executor.h"
#include "daemon/sessions/registration_account.h"
#include "daemon/sessions/registration_book.h"
#include "daemon/sessions/session.h"
#include "daemon/sessions/session_resources.h"
#include "proto/base/command_queue.h"
#include "proto/base/mutex.h"
#include "proto/door/door_key.h"
#include "proto/shm/user_account.h"

namespace ringd {

struct EngineOptions {
  Config config;        // node_name and peer_address as resolved
  std::string version;  // of this ringd
  // Where other ringds reach this one, in all forms that a launcher may give, so that the node of
  // rank 0 knows itself without dialling.
  std::set<std::string> own_addresses;
  bool has_cluster_key = false;  // for messages
  // Of the next job that is coordinated here; it grows from one to the next.
  std::uint32_t first_generation = 0;
  // Number of the first job's communicator of all ranks, which no other engine of this node has.
  std::uint32_t first_communicator = 1;
  AlgorithmOptions algorithms;
  EngineListener* listener = nullptr;  // null: nobody is told
  std::unique_ptr<PlanStore> plans;    // what earlier jobs have learned; null: nothing is known
  // If the one user whom this engine serves has others on this node: what all of them have
  // together, in memory that outlives the engine. Empty: there is this engine only.
  std::optional<UserCount> user_registrations = {};
  std::optional<UserCount> user_communicators = {};
};

// Thread safety: public methods from any thread.
// Ownership: owns sessions, jobs and the transport; the network is borrowed and must outlive it.
// Invariant: while it runs, no method waits for the progress thread longer than its deadline.
class Engine final : private PeerEvents {
 public:
  // `transport` may be null: then jobs must have all their ranks on this node.
  // `rank_exchange` may be null: then no job has one.
  Engine(EngineOptions options, std::unique_ptr<Transport> transport,
         std::unique_ptr<RankExchangeSockets> rank_exchange, PeerNetwork* network);
  ~Engine() override;

  void Start();
  // Fails every job ("ringd on <node> was stopped", or what `how` says in its place), tells all
  // clients, ends the thread. Blocks about as long as one turn of the loop.
  void Stop(absl::string_view how = "was stopped");

  // A trainer is about to join: from now on its session is the engine's. One whose memory can't be
  // mapped ends at once and hears why. After Stop it just ends, and the listener hears nothing.
  void Attach(std::unique_ptr<SessionResources> resources);

  // `config` is that of the start but for settings that may change while ringd runs
  // (Setting::reloaded). Jobs that there are keep theirs.
  void Reload(const Config& config);

  // While it drains nobody joins: jobs that gather ranks can't start.
  void SetDraining(bool draining);
  // Somebody wanted to join the job here and was refused before his session came: the job's ranks
  // hear `why` if it can't start.
  void NoteTurnedAway(std::string why);
  // True when it has no session.
  bool Idle() const noexcept { return session_count_.load(std::memory_order_relaxed) == 0; }
  // Grows at least once a second while the engine is alive.
  std::uint64_t heartbeat() const noexcept { return heartbeat_.load(std::memory_order_relaxed); }
  // What it does just now.
  EngineActivity::Moment activity() const noexcept { return activity_.Get(); }
  // What calls of any size have cost the engine, in entries (SlicedWork), and the most that they
  // did in one turn.
  std::uint64_t sliced_entries() const noexcept {
    return sliced_entries_.load(std::memory_order_relaxed);
  }
  std::uint64_t most_sliced_entries() const noexcept {
    return most_sliced_entries_.load(std::memory_order_relaxed);
  }

  // As NodeCalls. Of a Join its caller has found nothing to refuse that can be seen without a
  // job; `job_key` is JobKey of the request and the session's user.
  [[nodiscard]] std::function<void()> Join(const Caller& caller, absl::string_view token,
                                           const v1::JoinRequest& request, const DoorKey& job_key,
                                           Answer<v1::JoinReply> answer);
  void RegisterTensors(const Caller& caller, absl::string_view token,
                       const v1::RegisterTensorsRequest& request,
                       Answer<v1::RegisterTensorsReply> answer);
  void UnregisterTensors(const Caller& caller, absl::string_view token,
                         const v1::UnregisterTensorsRequest& request,
                         Answer<v1::UnregisterTensorsReply> answer);
  void DescribeMismatch(const Caller& caller, absl::string_view token,
                        const v1::DescribeMismatchRequest& request,
                        Answer<v1::DescribeMismatchReply> answer);
  void CreateCommunicator(const Caller& caller, absl::string_view token,
                          const v1::CreateCommunicatorRequest& request,
                          Answer<v1::CreateCommunicatorReply> answer);
  void DestroyCommunicator(const Caller& caller, absl::string_view token,
                           const v1::DestroyCommunicatorRequest& request,
                           Answer<v1::DestroyCommunicatorReply> answer);
  void OpenDevice(const Caller& caller, absl::string_view token,
                  const v1::OpenDeviceRequest& request, Answer<v1::OpenDeviceReply> answer);
  void AgreeOnDevices(const Caller& caller, absl::string_view token,
                      const v1::AgreeOnDevicesRequest& request,
                      Answer<v1::AgreeOnDevicesReply> answer);
  void Leave(const Caller& caller, absl::string_view token, const v1::LeaveRequest& request,
             Answer<v1::LeaveReply> answer);
  // Those that have not ended.
  void ListJobs(const Caller& caller, const v1::ListJobsRequest& request,
                Answer<v1::JobsReply> answer);
  void ListCommunicators(const Caller& caller, const v1::ListCommunicatorsRequest& request,
                         Answer<v1::CommunicatorsReply> answer);
  void ListQueues(const Caller& caller, const v1::ListQueuesRequest& request,
                  Answer<v1::QueuesReply> answer);
  void TraceJob(const Caller& caller, const v1::TraceRequest& request,
                Answer<v1::TraceReply> answer);
  void ReportExit(const Caller& caller, const v1::ReportExitRequest& request,
                  Answer<v1::ReportExitReply> answer);

 private:
  struct SessionEntry {
    std::shared_ptr<Session> session;
    Job* job = nullptr;  // once it has joined
    std::shared_ptr<RegistrationBook> book;
    bool opens_device = false;  // a slab is being made for it
  };

  // PeerEvents: post to the progress thread.
  void OnNodeConnected(StreamId stream, ExpectationId job, std::string from) override;
  void OnNodeRefused(ExpectationId job, RefusedNode node) override;
  void OnNodeMessage(StreamId stream, v1::NodeMessage message, MessageHold hold) override;
  void OnNodeDisconnected(StreamId stream, absl::Status why) override;
  void OnCoordinatorIsHere(StreamId stream) override;
  void OnCoordinatorMessage(StreamId stream, v1::CoordinatorMessage message,
                            MessageHold hold) override;
  void OnCoordinatorDisconnected(StreamId stream, absl::Status why) override;

  // ---- on the progress thread ----
  void Run();
  // Shows the ranks that the engine is alive, every now and then.
  void ShowHeartbeat(Clock::time_point now);
  std::size_t Turn(Clock::time_point now);
  void Sleep(Clock::time_point now);
  bool AnythingToDo() const;
  void HandleEvents(std::chrono::milliseconds timeout);
  std::size_t PollSessions(Clock::time_point now);
  void TickAll(Clock::time_point now);
  void Sweep(Clock::time_point now);

  void EndSession(SessionId id, const std::string& reason, bool for_cause);
  void EndAllSessions();
  void NoteSessionGiven();
  void TellSessionEnded(SessionId id, bool for_cause) const;
  // What Stop does on the progress thread.
  void EndAll();
  void TellJobs() const;
  // Tells that all has gone, once after each session that came.
  void TellIfIdle();
  // Tells trainers what they had no room for before.
  void FlushNotices(Clock::time_point now);
  SessionEntry* FindToken(absl::string_view token);
  // What OpenDevice asked for has been made, or not.
  absl::StatusOr<v1::OpenDeviceReply> GiveSlab(SessionId id, const absl::Status& status,
                                               std::shared_ptr<const SessionSlab> slab,
                                               const UniqueFd& descriptor);
  // Its rank goes without device memory of ringd's.
  absl::StatusOr<v1::OpenDeviceReply> GiveHostPath(SessionId id,
                                                   const v1::OpenDeviceRequest& request,
                                                   const std::string& why);
  // The session's rank can't use a GPU; for the other ranks to know.
  void TellNoGpu(SessionId id, absl::string_view why);
  DeviceAsker AskerFor(const SessionEntry& entry, const v1::OpenDeviceRequest& request);
  // Fails the jobs if a GPU's driver does not come back, and ends the process a moment later: it
  // could give nothing back, and streams would wait for it.
  void LookAtDevices(Clock::time_point now);
  // The session if it may describe tensors: it has joined a job, which goes on.
  absl::StatusOr<SessionEntry*> FindMember(SessionId id);
  void JoinNow(absl::string_view token, const v1::JoinRequest& request, const DoorKey& job_key,
               JoinCallback done);
  Job* OpenJob(const v1::JoinRequest& request, const DoorKey& key, uid_t uid,
               Clock::time_point now);
  // A number that no communicator has that is alive here.
  CommunicatorId NextCommunicator();
  // A job's coordinator as long as it gathers ranks; null if there is none.
  JobCoordinator* FindCoordinator(const std::string& job_id, uid_t uid) const;
  // Told to all if the job can't start.
  void TellTurnedAway(const Job::Options& job, const std::string& why);
  JobCoordinator* OpenCoordinator(const Job::Options& job);
  // Links a job of this node with its coordinator, which is here, and lets its other nodes in.
  void Coordinate(Job* job, JobCoordinator* coordinator);
  // The job, while it gathers ranks.
  Job* FindExpected(ExpectationId id) const;
  // Jobs that don't gather ranks any more, or go, let no node in.
  void StopExpecting();
  void GreetNode(StreamId stream, const v1::NodeMessage& message, Clock::time_point now);
  void DropOldStrangers(Clock::time_point now);

  void GiveUpJoin(const std::string& token);
  // kResourceExhausted: the user has as many communicators on this node as possible.
  absl::Status CheckCommunicatorsOf(uid_t uid);
  // Besides each job's one of all ranks; of all users if none is named.
  std::uint64_t ExtraCommunicatorsOf(std::optional<uid_t> uid) const;
  // For the user's other engines.
  void PublishCommunicators();
  std::size_t RunSliced(std::size_t other_work, Clock::time_point now);
  // A user sees his own jobs, an operator all.
  bool MayShow(const Caller& caller, uid_t uid) const;
  // Where all waits that a user asks of the engine about jobs, and that others ask of it about his.
  static SlicedQueue::Flow FlowOf(uid_t uid);
  // The one that runs, of several of one id the last; null: the caller has none.
  Job* FindShown(const Caller& caller, const std::string& job_id) const;
  void TellJobEnded(const Job& job, Clock::time_point now);
  absl::Status WhyStopped() const {
    return absl::AbortedError(
        absl::StrCat("ringd on ", options_.config.node_name, " ", how_stopped_));
  }

  // Nodes that wait for traces of jobs here get their answers, each job in its turn.
  void GiveTraceTurns();

  // ---- on the threads of those who call ----
  class TraceCall;
  class TraceTurn;
  class RegistrationWork;
  class UnregistrationWork;
  template <typename Reply>
  class ListWork;
  // An empty `job_id`: all.
  template <typename Reply>
  void List(const Caller& caller, std::string job_id, Answer<Reply> answer);
  std::shared_ptr<RegistrationBook> FindBook(absl::string_view token)
      ABSL_LOCKS_EXCLUDED(books_mutex_);
  // Ends the call and returns null if no session has the token.
  template <typename Reply>
  std::shared_ptr<RegistrationBook> FindBook(absl::string_view token,
                                             const std::shared_ptr<PendingCall<Reply>>& call) {
    auto book = FindBook(token);
    if (book == nullptr) call->Finish(UnknownToken());
    return book;
  }
  // A call that the engine is to answer within seconds.
  template <typename Reply>
  std::shared_ptr<PendingCall<Reply>> Begin(Answer<Reply> answer) {
    return BeginCall(calls_, std::move(answer), kCallTimeout, [] { return EngineIsSilent(); });
  }
  // The same for one that may have to wait behind others, as long as the engine is alive.
  template <typename Reply>
  std::shared_ptr<PendingCall<Reply>> BeginSliced(Answer<Reply> answer) {
    auto seen = std::make_shared<std::uint64_t>(heartbeat());
    return BeginCall(calls_, std::move(answer), kCallTimeout, [this, seen]() -> absl::Status {
      const std::uint64_t before = std::exchange(*seen, heartbeat());
      return *seen == before ? EngineIsSilent() : absl::OkStatus();
    });
  }
  static absl::Status EngineIsSilent() {
    return absl::DeadlineExceededError("ringd's engine does not answer");
  }
  static absl::Status UnknownToken() {
    return absl::UnauthenticatedError("no session has this token");
  }
  // Runs `command`, which ends the call, on the progress thread.
  template <typename Reply>
  void PostCall(const std::shared_ptr<PendingCall<Reply>>& call, CommandQueue::Command command) {
    if (running_) {
      commands_.Post(std::move(command));
    } else {
      call->Finish(absl::UnavailableError("ringd is stopping"));
    }
  }
  // Runs `body`, which ends the call, on the progress thread, for the session that has the token
  // and has joined a job.
  template <typename Reply, typename Body>
  void PostToJob(const std::shared_ptr<PendingCall<Reply>>& call, absl::string_view token,
                 Body body) {
    PostCall(call, [this, call, token = std::string(token), body = std::move(body)] {
      const SessionEntry* entry = FindToken(token);
      if (entry == nullptr) {
        call->Finish(UnknownToken());
      } else if (entry->job == nullptr) {
        call->Finish(NotJoined());
      } else {
        body(*entry);
      }
    });
  }
  // Lets `work`, which ends the call, take its turn with others of its flow.
  template <typename Reply>
  void PostSliced(const std::shared_ptr<PendingCall<Reply>>& call, const SlicedQueue::Flow& flow,
                  std::shared_ptr<SlicedWork> work) {
    PostCall(call, [this, flow, work = std::move(work)]() mutable {
      sliced_.Add(flow, std::move(work));
    });
  }

  static constexpr std::chrono::seconds kCallTimeout{5};

  std::string how_stopped_ = "was stopped";  // Stop's, before the progress thread hears of it
  CallThread calls_;                         // stopped by the destructor, after the sessions
  IsolatedExecutor
      isolated_;  // likewise: for what sessions and rank exchanges hold together with trainers
  EngineOptions options_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<RankExchangeSockets> rank_exchange_;  // before the jobs that use it
  bool rank_exchange_stirred_ = false;
  PeerNetwork* network_;
  CommandQueue commands_;
  EventPoll events_;
  DeviceRoom devices_;                        // before the jobs that use it
  std::optional<Clock::time_point> ends_at_;  // since a GPU's driver does not come back
  ReducerPool reducers_;                      // before the jobs that give it work
  std::thread thread_;

  std::atomic<bool> stopping_{false};
  std::atomic<bool> running_{false};
  std::atomic<std::int64_t>
      start_timeout_ns_;  // options_.config's, for all threads; relaxed: a number
  std::atomic<std::uint64_t> heartbeat_{0};
  EngineActivity activity_;
  std::atomic<std::size_t> session_count_{0};
  std::atomic<std::uint64_t> sliced_entries_{0};
  std::atomic<std::uint64_t> most_sliced_entries_{0};

  RegistrationAccounts accounts_;
  Mutex books_mutex_;
  // By token, for the threads on which calls arrive.
  std::unordered_map<std::string, std::shared_ptr<RegistrationBook>> books_
      ABSL_GUARDED_BY(books_mutex_);
  SlicedQueue sliced_;

  std::map<SessionId, SessionEntry> sessions_;
  std::uint64_t sessions_given_ = 0;
  bool draining_ = false;
  bool idle_told_ = true;  // since the last session came; there was none: true
  std::unordered_map<std::string, SessionId> tokens_;
  const std::unique_ptr<PlanStore> plans_;  // before the coordinators that use it
  std::list<std::unique_ptr<Job>> jobs_;    // before the links that point at them
  std::list<std::unique_ptr<JobCoordinator>> coordinators_;
  std::map<ExpectationId, Job*>
      expected_;  // those that this ringd coordinates and that gather ranks
  LogLimiter refusals_{20, std::chrono::seconds(10)};
  std::unique_ptr<LinkSwitch> links_;
  std::uint32_t next_generation_;
  std::uint64_t jobs_opened_ = 0;
  std::uint32_t communicators_made_ = 0;
  Clock::time_point next_tick_;
  Clock::time_point next_beat_;  // shown to the ranks
  SpinHabit spin_;
  Clock::time_point due_;  // by which the next turn begins
  Standstill standstill_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_ENGINE_ENGINE_H_
