// One job on this node: its local ranks, from the first that joins to the last that goes.
#ifndef RINGD_DAEMON_JOBS_JOB_H_
#define RINGD_DAEMON_JOBS_JOB_H_

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/backend.h"
#include "daemon/jobs/awaited_communicator.h"
#include "daemon/jobs/communicator/job_communicator.h"
#include "daemon/jobs/communicator/trace_reading.h"
#include "daemon/jobs/communicator_part.h"
#include "daemon/jobs/measuring/start_probe.h"
#include "daemon/jobs/membership/agreed_cause.h"
#include "daemon/jobs/membership/coordinator_link.h"
#include "daemon/jobs/membership/coordinator_watch.h"
#include "daemon/jobs/membership/device_agreement.h"
#include "daemon/jobs/membership/membership.h"
#include "daemon/jobs/tracing/clock_offset.h"
#include "daemon/jobs/tracing/trace_gatherings.h"
#include "daemon/jobs/tracing/trace_inquiries.h"
#include "daemon/lanes/rank_exchange/rank_exchange_setup.h"
#include "daemon/lanes/rank_exchange/rank_exchange_sockets.h"
#include "daemon/logging/log.h"
#include "daemon/logging/log_limiter.h"
#include "daemon/sessions/isolated_executor.h"
#include "daemon/sessions/process_exit.h"
#include "daemon/sessions/registration_account.h"
#include "daemon/sessions/session.h"
#include "proto/base/clock.h"
#include "proto/door/door_key.h"
#include "proto/rank_exchange/rank_exchange_segment.h"
#include "proto/rpc/admin.pb.h"
#include "proto/rpc/client.pb.h"
#include "proto/rpc/peer.pb.h"
#include "proto/types/job_weight.h"

namespace ringd {

using JoinCallback = std::function<void(const absl::Status&, const v1::JoinReply&)>;

// Thread safety: none; the progress thread owns it.
// Ownership: holds its sessions and its communicator; `transport` must outlive it.
// Invariants:
//   1. Each join is answered exactly once.
//   2. The cause of a failure is the same for every local rank; and for all nodes' ranks, as long
//      as the coordinator's word reaches them (AgreedCause).
//   3. Once a rank has left or the job has failed, nobody joins any more: a rank that comes back
//      starts the job's next incarnation.
class Job {
 public:
  struct Options {
    std::uint64_t number = 0;  // grows from job to job of this ringd
    std::string job_id;
    uid_t uid = 0;
    int size = 0;
    int local_size = 0;
    std::string rendezvous;  // host:port; empty: this ringd
    std::string secret;
    DoorKey key{};                  // JobKey: what the nodes of the job prove to each other
    bool has_cluster_key = false;   // this ringd; for messages
    bool coordinates_here = false;  // this ringd holds the job's coordinator
    std::string node_name;
    std::string transport_address;
    std::string daemon_version;
    CommunicatorId communicator;  // of all ranks
    // For each other communicator that has ranks here. Null: there can be none.
    std::function<CommunicatorId()> next_communicator;
    std::optional<std::uint32_t> generation;  // if this ringd coordinates the job
    std::chrono::nanoseconds start_timeout{};
    std::chrono::nanoseconds stall_warning{};
    std::chrono::nanoseconds operation_timeout{};  // 0: none
    std::string fusion;                            // that the ranks ask for; empty: none
    std::uint32_t weight = kMinJobWeight;
    Reducers* reducers = nullptr;          // null: there are none; else must outlive the job
    IsolatedExecutor* isolated = nullptr;  // JobCommunicator::Options'
    DeviceRoom* devices = nullptr;         // likewise
    // Null: this node takes no part in a rank exchange; else must outlive the job.
    RankExchangeSockets* rank_exchange = nullptr;
  };
  enum class State { kJoining, kRunning, kFailed };

  // `transport` may be null: then the job must have all its ranks on this node.
  Job(Options options, Transport* transport, Clock::time_point now);
  ~Job();

  const Options& options() const noexcept { return options_; }
  State state() const noexcept { return state_; }
  const absl::Status& failure() const noexcept { return agreed_.cause(); }
  // False once no further rank may join.
  bool Open() const noexcept { return state_ == State::kJoining && !anyone_left_; }
  // True when it can be destroyed: no sessions, nothing in flight, and what this node has seen is
  // answered.
  bool Finished() const;
  // All ranks of this node have left in order.
  bool AllHaveLeft() const;

  // What a line of the log about this job names; with a rank, a line about that one. Valid as long
  // as the job.
  LogFields Fields() const;
  LogFields Fields(Rank rank) const;
  LogFields Fields(const Session& session) const;

  // How this job reaches its coordinator, which has proved that it knows the job's key before it
  // speaks; before the first Join.
  void UseLink(std::unique_ptr<CoordinatorLink> link);
  // It has turned out that this ringd coordinates the job: its rendezvous leads here. UseLink
  // follows.
  void CoordinateHere(std::uint32_t generation) noexcept {
    options_.coordinates_here = true;
    options_.generation = generation;
  }

  // Takes the place that the request names, for `session`. `done` is called when all have joined,
  // or not. At once: kUnauthenticated, for this one alone; kAlreadyExists and kInvalidArgument,
  // which end the job.
  void Join(std::shared_ptr<Session> session, const v1::JoinRequest& request, JoinCallback done);
  absl::Status Register(const Session& session, Registration& registration);
  // The two halves of Register: whether the session may register at all; and a number for one
  // description, by its communicator (`meta_key`: MetaKey of its meta).
  absl::Status MayRegister(const Session& session) const;
  absl::Status Number(const Session& session, Registration& registration,
                      const std::string& meta_key);
  // Whether the session may have device memory.
  //   kFailedPrecondition: it has joined no job that runs.
  //   kAlreadyExists: it has some. The job's failure.
  absl::Status MayOpenDevice(const Session& session) const;
  // What has come of that, for all nodes to hear; its rank is the session's.
  void TellDevice(const Session& session, v1::RankDevice device);
  // Whether the communicator's tensors on GPUs go by the host path; answered once that is known.
  // Errors as Client.AgreeOnDevices'.
  void AgreeOnDevices(const Session& session, CommunicatorId communicator, Clock::time_point now,
                      DeviceAgreement::Done done);
  // "rank 1 (pid 4711)". Precondition: it has joined.
  std::string NameOf(const Session& session) const;
  // Of one that was numbered: its session does not hold it any more.
  void Release(const Registration& registration) noexcept;
  // Takes what the tables of names and metas have grown by out of `paid`, which has it.
  void PayForTables(CommunicatorId communicator, RegistrationBytes& paid) noexcept;
  // As JobCommunicator::DescribeMismatch.
  absl::StatusOr<std::string> DescribeMismatch(CommunicatorId communicator, std::uint32_t tensor,
                                               std::span<const std::uint32_t> metas) const;

  // A communicator of some ranks, the session's among them. `done` is called exactly once, when all
  // of them have asked or can't any more; errors as Client.CreateCommunicator's.
  void CreateCommunicator(const Session& session, const v1::CreateCommunicatorRequest& request,
                          CreateCommunicatorCallback done);
  // True if one of its communicators has this number.
  bool HasCommunicator(CommunicatorId id) const {
    return id == options_.communicator || parts_by_id_.contains(id.value());
  }
  // How many there are besides that of all ranks, and how many asks wait.
  std::size_t extra_communicators() const noexcept { return parts_.size() + asks_.size(); }
  absl::Status DestroyCommunicator(const Session& session, CommunicatorId communicator,
                                   Clock::time_point now);

  void Submit(const Session& session, const CheckedSubmission& submission, Clock::time_point now);

  void OnCoordinatorMessage(v1::CoordinatorMessage message, Clock::time_point now);
  void OnLinkLost(const absl::Status& why);

  // The session left in order. False: it was no member.
  bool Leave(const Session& session, Clock::time_point now);
  // The session's rank has failed, as it says itself in the words of LeaveRequest.failure, which
  // are not trusted: that is the job's cause, unless there is an earlier one.
  void LeaveFailed(const Session& session, absl::string_view failure, Clock::time_point now);
  // `rank` comes again. If this incarnation still gathers and has had it, it ends now, for whom it
  // has lost.
  void GiveWay(Rank rank, Clock::time_point now);
  // The session's process is gone; Tick then waits a moment for word of how it ended. Or ringd has
  // ended the session, `for_cause`: then `reason` is what the others hear.
  void OnSessionLost(const Session& session, const std::string& reason, bool for_cause,
                     Clock::time_point now);
  // A launcher's word of how a rank of this node ended. False: no such rank here. One that has not
  // joined will not: then the job fails.
  bool OnExitReport(Rank rank, int pid, const ProcessExit& exit);

  // Ends the job here with `cause` at once, and tells the coordinator: where nobody's answer can be
  // waited for.
  void Fail(const absl::Status& cause);

  // As JobCommunicator's.
  bool CopyPiece();
  void Settle();

  // Advances everything a bit; returns the amount of work done.
  std::size_t Advance(Clock::time_point now);
  // Stalls, deadlines, deaths: call it every 50 ms or so, and when NextTick has come.
  void Tick(Clock::time_point now);
  bool NeedsTicks() const noexcept;
  std::optional<Clock::time_point> NextTick(Clock::time_point now) const;

  // What ringctl shows.
  void Describe(v1::Job* out, Clock::time_point now) const;
  void Describe(v1::CommunicatorsReply* out, Clock::time_point now) const;
  void Describe(v1::QueuesReply* out, Clock::time_point now) const;

  // Gathers from all nodes what has happened to operations since the positions of the request.
  // `done` is called exactly once, perhaps before this returns; kFailedPrecondition,
  // kResourceExhausted: as Admin.TraceJob.
  void Trace(const v1::TraceRequest& request, Clock::time_point now, TraceGatherings::Done done);
  // True if a node waits for what this one knows of a trace, and no turn for that is under way. One
  // is then: AnswerTrace has to be called until it is over. Jobs of one engine share its thread, so
  // whoever has several gives them turns one after the other.
  [[nodiscard]] bool BeginTraceTurn() noexcept;
  // Goes on with the answer to one inquiry, at the cost of about `budget` events (TraceReading).
  // Returns what it has cost, at least one. The turn is over when the answer has been sent, or
  // can't be.
  std::size_t AnswerTrace(std::size_t budget, Clock::time_point now);
  bool HasTraceTurn() const noexcept { return trace_turn_; }

 private:
  struct Member {
    Rank rank;
    LocalRank local_rank;
    int pid = 0;
    std::string program;
    std::shared_ptr<Session> session;  // null once it has gone
    JoinCallback done;                 // while joining
    bool left = false;
    std::optional<ProcessExit> exit;              // as its launcher says, else the kernel
    std::string lost_reason;                      // not empty: it died, or has said that it failed
    std::optional<Clock::time_point> lost_since;  // told to nobody yet
    std::optional<ExitInquiry> inquiry;           // from then on, unless ringd ended the session
    bool foretold = false;                        // the node's ranks know that it has ended
  };

  using Ask = AwaitedCommunicator;

  Member* Find(const Session& session);
  const Member* Find(const Session& session) const;
  int PositionOf(const Member& member) const;
  absl::Status CheckJoin(const v1::JoinRequest& request) const;
  void SendHello();
  void SendJoined(const Member& member);
  bool ListsOurRanks(const Membership& membership) const;
  void OnMembership(const v1::Membership& message, Clock::time_point now);
  // The part's communicator, from its membership. What backend or kernel say: there is none.
  absl::Status Begin(CommunicatorPart& part);
  absl::StatusOr<JobCommunicator::Way> MakeWay(
      const CommunicatorPart& part, std::span<const std::shared_ptr<Session>> sessions) const;
  // Those that have a communicator, the one of all ranks first.
  std::vector<CommunicatorPart*> Parts();
  std::vector<const CommunicatorPart*> Parts() const;
  CommunicatorPart* Find(std::uint32_t number);
  CommunicatorPart* Find(CommunicatorId id);
  const Member& MemberOf(const CommunicatorPart& part, int member) const {
    return std::next(members_.begin(), part.positions[static_cast<std::size_t>(member)])->second;
  }
  void Activate(CommunicatorPart& part, Clock::time_point now);
  std::size_t AdvanceActive(Clock::time_point now);
  void DropEnded();
  void OnCommunicatorMade(std::uint32_t number, const v1::CommunicatorMade& made,
                          Clock::time_point now);
  void OnCommunicatorRefused(const v1::CommunicatorRefused& refused);
  static v1::CreateCommunicatorReply Describe(const CommunicatorPart& part);
  void OnDeviceId(CommunicatorPart& part, const v1::DeviceId& id);
  void OnRankDevice(const v1::RankDevice& device);
  void TellWhoseDevicesAreAwaited(Clock::time_point now);
  // Whether the session may have this tensor, which is in device memory.
  static absl::Status CheckOnDevice(const Session& session, const Registration& registration);
  // Of its ranks on this node; null: none has.
  const Member* WhoHasLeft(const CommunicatorPart& part) const;
  void OnCommunicatorDropped(CommunicatorPart& part, int rank, Clock::time_point now);
  // The coordinator: the rank, of this node, has no such communicator any more.
  void TellDropped(std::uint32_t number, Rank rank);
  // Answers those of the members who ask for a communicator and fit.
  void AnswerAsks(const std::function<bool(const Ask&)>& fits, const absl::Status& status,
                  const v1::CreateCommunicatorReply& reply);
  std::string DescribeInFlight() const;
  // Who has left or destroyed it while something waits for him there, as a sentence; empty: nobody.
  std::string DescribeGone(const CommunicatorPart& part, Clock::time_point now) const;
  void Tick(CommunicatorPart& part, Clock::time_point now);
  void TickParts(Clock::time_point now);
  void BeginRankExchange(Clock::time_point now);
  std::size_t AdvanceRankExchange(Clock::time_point now);
  void LookAtRankExchange(Clock::time_point now);
  std::string DescribeBreak(const RankExchangeBreak& broken) const;
  void OnProbe(const v1::CoordinatorMessage& asked);
  void BeginProbe(const v1::CoordinatorMessage& asked);
  std::size_t AdvanceProbe();
  void EndProbe();
  void OnGathering(v1::Gathering gathering, Clock::time_point now);
  void OnRanksLeft(const v1::RanksLeft& message, Clock::time_point now);
  void OnOrderInquiry(CommunicatorPart& part, const v1::OrderInquiry& inquiry,
                      Clock::time_point now);
  void OnStallInquiry(CommunicatorPart& part, const v1::StallInquiry& inquiry);
  void OnStallVerdict(CommunicatorPart& part, const v1::StallVerdict& verdict,
                      Clock::time_point now);
  bool StallGoesOn(const CommunicatorPart& part) const;
  // Of the stall that goes on; null: the rank is not awaited, or there is none.
  static const v1::AwaitedRank* FindAwaited(const v1::Stall& stall, Rank rank);
  std::optional<v1::Stall> DescribeStall(const CommunicatorPart& part, Clock::time_point now) const;
  void OnTraceInquiry(v1::TraceInquiry inquiry, Clock::time_point now);
  void OnClockPong(const v1::ClockPong& pong);
  // As FindTraced of TraceReading.
  const JobCommunicator* FindTraced(TracedPart part) const;
  bool BeginTraceAnswer(Clock::time_point now);
  void SendTraceAnswer(Clock::time_point now);
  void SendClockPing();
  // Asks it for a sign of life, while something waits for its word.
  void WatchCoordinator(Clock::time_point now);
  void AnswerJoins(const absl::Status& status);
  // True while other nodes may still ask for what a rank had submitted that has left: they hear why
  // it does not come.
  bool AnswersForLeavers() const noexcept;
  Member* FirstLost();
  // How those who have left ended afterwards, as far as it is known by now.
  void LookAtLeavers();
  std::string DescribeLeaversEnd(const std::vector<int>& ranks) const;
  void TellDeaths(Clock::time_point now, bool at_once = false);
  std::string NameOf(const Member& member) const;
  // Of the job's, wherever it is. Precondition: it runs.
  std::string NameOf(Rank rank) const;
  void ForetellDeath(Member& member);
  void AnnounceDeath(Member& member, const std::string& end);
  // How far a job had come that did not run yet, as a clause.
  std::string DescribeStart() const;
  void CheckStalls(CommunicatorPart& part, Clock::time_point now);
  // To ranks that wait for others to join, every few seconds.
  void TellWhatJoinsWaitFor(Clock::time_point now);
  std::string WhatJoinsWaitFor(Clock::time_point now) const;
  // To ranks that wait for a communicator, ever more rarely.
  void TellWhatAsksWaitFor(Clock::time_point now);
  // This node has seen why the job can't go on: it ends when the coordinator has answered.
  void Propose(const absl::Status& cause);
  void TellCoordinator(const absl::Status& cause);
  void FailLocally(const absl::Status& cause);
  std::string StateOf(const Member& member) const;
  void DropCommunicator(CommunicatorPart& part, Clock::time_point now);
  void DescribeMissing(v1::Job* out, Clock::time_point now) const;
  static void MarkStalled(const v1::Stall& stall, v1::RankQueue& queue);
  void Describe(const CommunicatorPart& part, v1::Communicator* out, Clock::time_point now) const;
  void DescribeMembers(const CommunicatorPart& part, v1::Communicator* out) const;
  static void DescribeRing(const Membership& membership, v1::Communicator* out);
  void DescribeRankExchange(v1::RankExchange* out) const;
  static void DescribeDevices(const JobCommunicator& communicator, v1::Communicator* out);
  static void DescribeSchedule(const JobCommunicator& communicator, v1::Communicator* out);
  void Describe(const CommunicatorPart& part, v1::QueuesReply* out, Clock::time_point now) const;
  void DescribeMember(const Member& member, v1::RankQueue& queue) const;
  void DescribePending(const CommunicatorPart& part, const WaitingSubmission& entry,
                       v1::PendingTensor* out, Clock::time_point now) const;

  Options options_;
  Transport* transport_;
  State state_ = State::kJoining;
  AgreedCause agreed_;
  Clock::time_point created_;
  Clock::time_point joins_told_at_;
  Clock::time_point start_deadline_;
  std::unique_ptr<CoordinatorLink> link_;
  std::unique_ptr<CoordinatorLink> lost_link_;  // where link_ goes when it breaks
  bool greeted_ = false;                        // our Hello is on its way
  bool anyone_left_ = false;
  std::map<LocalRank, Member> members_;
  std::unique_ptr<StartProbe> probe_;                 // until nothing of it is in flight
  std::optional<v1::CoordinatorMessage> next_probe_;  // asked for meanwhile
  std::shared_ptr<const Membership> membership_;
  CommunicatorPart world_;                                            // of all ranks
  std::map<std::uint32_t, std::unique_ptr<CommunicatorPart>> parts_;  // the others, by number
  absl::flat_hash_map<std::uint32_t, CommunicatorPart*> parts_by_id_;
  std::vector<CommunicatorPart*> active_;  // of parts_
  // By the last looks something waits in one of parts_, or one of them cools or is to be dropped.
  bool parts_need_ticks_ = false;
  std::vector<Ask> asks_;
  DeviceAgreement agreement_{[this](int rank) { return NameOf(Rank(rank)); }};
  LogLimiter communicator_log_{20, std::chrono::seconds(10)};
  std::unique_ptr<RankExchangeSetup> rank_exchange_setup_;  // joins are answered when it has ended
  std::string no_rank_exchange_;                            // why there is none
  bool rank_exchange_end_told_ = false;

  // Ranks that left, here or elsewhere, and when we heard: what waits for them can't end well.
  std::vector<int> left_ranks_;
  Clock::time_point last_left_;
  bool leave_is_long_ago_ = false;
  std::optional<v1::Gathering> gathering_;  // while joining, as the coordinator told it last
  CoordinatorWatch coordinator_watch_;

  TraceGatherings trace_gatherings_;           // what this node's ringctls have asked for
  TraceInquiries trace_inquiries_;             // that this node has to answer
  bool trace_turn_ = false;                    // from BeginTraceTurn until it is over
  v1::TraceAnswer trace_answer_;               // with what trace_reading_ will have read
  std::optional<TraceReading> trace_reading_;  // under way
  ClockOffset clock_offset_;                   // of the coordinator
};

}  // namespace ringd

#endif  // RINGD_DAEMON_JOBS_JOB_H_
