// Gathers a job's ranks, and then speaks for all: order of operations, stalls, the first failure.
//
// It lives on the ringd of the node of rank 0. Nodes (its own included) are known by a LinkId; what
// they say and hear is proto/rpc/peer.proto. Secrets have been checked before a node gets here.
#ifndef RINGD_DAEMON_JOBS_COORDINATOR_JOB_COORDINATOR_H_
#define RINGD_DAEMON_JOBS_COORDINATOR_JOB_COORDINATOR_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "backends/communicator.h"
#include "daemon/jobs/coordinator/communicator_schedule.h"
#include "daemon/jobs/coordinator/communicator_table.h"
#include "daemon/jobs/coordinator/node_sender.h"
#include "daemon/jobs/measuring/link_survey.h"
#include "daemon/jobs/measuring/trial_survey.h"
#include "daemon/jobs/membership/membership.h"
#include "daemon/jobs/plans/plan_store.h"
#include "daemon/logging/log.h"
#include "daemon/schedule/planning/fusion_policy.h"
#include "proto/base/clock.h"
#include "proto/rpc/peer.pb.h"
#include "proto/types/job_weight.h"

namespace ringd {

// Thread safety: none; the progress thread owns it.
// Ownership: `sender` must outlive it.
// Invariants:
//   1. Every node hears at most one Failure, and all nodes hear the same.
//   2. After Membership has gone out, nobody joins any more.
class JobCoordinator {
 public:
  struct Options {
    std::string job_id;
    uid_t uid = 0;  // whose job it is on the coordinator's node
    int size = 0;
    std::uint32_t weight = kMinJobWeight;
    std::uint64_t wire_id = 0;  // random
    std::uint32_t generation = 0;
    CommunicatorId communicator;  // of the job on this node, for the log
    std::chrono::nanoseconds start_timeout{};
    AlgorithmOptions algorithms;
    // small_all_reduce_bytes follows the link, once that is known.
    bool choose_small_all_reduces = false;
    std::vector<std::string> ring_order;  // node names; others come behind
    // Without such an order: the ring follows the links between the nodes, measured if they are not
    // known.
    bool measure_links = false;
    // flat_all_reduce_bytes follows what small all-reduces take: tried if that is not known and
    // measure_links is set.
    bool choose_flat_all_reduces = false;
    bool learn = true;
    FusionPolicy fusion;
    std::size_t fusion_threshold_bytes = 0;  // the most a bucket may hold
    // What the job's ranks ask for, in their words, which `fusion` follows then; empty: nothing.
    // All nodes must say the same.
    std::string asked_fusion;
    LinkModel link;
    PlanStore* plans =
        nullptr;  // of earlier jobs; null: none, and nothing is kept. Must outlive this
  };

  JobCoordinator(Options options, NodeSender* sender, Clock::time_point now);

  const std::string& job_id() const noexcept { return options_.job_id; }
  std::uint32_t generation() const noexcept { return options_.generation; }
  uid_t uid() const noexcept { return options_.uid; }
  // True while Advance must be called although nothing happens.
  bool NeedsTicks() const noexcept;
  // True while a new node may be added.
  bool Open() const noexcept { return state_ == State::kJoining; }
  // True when no node is connected and nothing can happen any more.
  bool Finished() const noexcept { return nodes_.empty() && state_ != State::kJoining; }

  // A node whose proof was right. One that comes too late is told so, alone; one that disagrees
  // about the job ends it for all.
  void AddNode(LinkId link, const v1::Hello& hello, Clock::time_point now);
  void OnMessage(LinkId link, v1::NodeMessage message, Clock::time_point now);
  // Ends the job if ranks of the node take part in it, or are about to.
  void OnLinkLost(LinkId link, const absl::Status& why);

  // Somebody wanted to join who was not let in: told to all if the job can't start.
  void NoteTurnedAway(const std::string& why);

  // Sends what has become due: fused operations, and if it `judges` (Standstill) also verdicts and
  // the failures of those who are late.
  void Advance(Clock::time_point now, bool judges = true);
  // Ends the job everywhere with `cause`, unless it has ended already.
  void Fail(const absl::Status& cause);

  std::vector<int> MissingRanks() const;
  // Of all ranks; null before the job runs.
  const CommunicatorSchedule* schedule() const noexcept { return world_; }

 private:
  // kMeasuring: all have joined, and measure before they hear who is where.
  enum class State { kJoining, kMeasuring, kRunning, kFailed };
  struct Node : MemberNode {
    int local_size = 0;
    NodeIndex index;
    std::set<int> left;  // ranks that have left
    std::chrono::milliseconds start_timeout{};
  };
  LogFields Fields() const;
  void AddRank(LinkId link, const v1::RankInfo& info);
  void StartIfComplete(Clock::time_point now);
  void ChooseRing(std::vector<Node*> order, Clock::time_point now);
  void AskForLinks(const std::vector<Node*>& order, std::uint64_t wire_id);
  void OnLinkReport(LinkId link, const v1::LinkReport& report, Clock::time_point now);
  void EndSurvey(const absl::Status& outcome, Clock::time_point now);
  void FollowLinks(std::vector<Node*> order, const KnownLinks& known, Clock::time_point now);

  void ChooseFlat(std::vector<Node*> order, RingChoice ring, Clock::time_point now);
  void OnTrialReport(LinkId link, const v1::TrialReport& report);
  void EndTrial(const absl::Status& outcome);
  void FollowTrial(StoredTrial trial);

  static std::int64_t UnixSeconds();
  static std::vector<std::string> NamesOf(const std::vector<Node*>& nodes);
  static bool AreDistinct(const std::vector<std::string>& names);
  std::vector<Node*> NodesOf(const std::vector<LinkId>& links);
  bool MayMeasure(const std::vector<std::string>& names, Clock::time_point now) const;
  void BeginMeasuring(Clock::time_point now);
  // Sends `message` to each of the nodes; `probed`, a part of it, says who takes part. Their links.
  std::vector<LinkId> AskToMeasure(const std::vector<Node*>& order, std::uint64_t wire_id,
                                   v1::CoordinatorMessage& message, v1::ProbedNodes& probed);
  // Ends what has waited for others for too long.
  void Judge(Clock::time_point now);
  void EndLateMeasuring(Clock::time_point now);
  absl::Status ReportedBy(LinkId link, const absl::Status& status) const;
  void LogMeasured(absl::string_view what, std::size_t node_count) const;

  // Asks all nodes on behalf of one.
  void AskForTraces(const Node& asker, const v1::TraceQuestion& question);
  // Passes what a node has answered on to who asked.
  void PassTraceOn(const Node& from, v1::TraceAnswer answer);
  void Start(const std::vector<Node*>& order, RingChoice ring);
  CommunicatorSchedule* AddSchedule(std::uint32_t number, const std::string& name, bool by_order,
                                    Membership& membership);
  // The communicator that a message is about; null: there is none.
  CommunicatorSchedule* Find(std::uint32_t number);
  void Wake(CommunicatorSchedule* schedule);
  void OnCommunicatorAsk(const Node& node, const v1::CommunicatorAsk& ask, Clock::time_point now);
  void OnCommunicatorDrop(LinkId link, const Node& node, std::uint32_t number, int rank);
  void EndCommunicator(CommunicatorSchedule& schedule, std::uint32_t number);
  void OnRankDevice(const Node& node, const v1::RankDevice& device);
  void Make(const AskedCommunicator& asked);
  void Refuse(const RefusedCommunicator& refused);
  void OnFailure(const Node& node, const v1::Failure& failure, Clock::time_point now);
  void OnRanksLeft(LinkId link, Node& node, const v1::RanksLeft& left);
  void Refuse(LinkId link, const absl::Status& reason);
  void FailWith(const absl::Status& cause, bool node_lost);
  void Broadcast(const v1::CoordinatorMessage& message);
  void BroadcastExcept(LinkId but, const v1::CoordinatorMessage& message);
  void TellWhoIsMissing(Clock::time_point now);
  void FailToStart(std::chrono::nanoseconds timeout);
  std::string DescribePresent() const;

  Options options_;
  NodeSender* sender_;
  State state_ = State::kJoining;
  absl::Status failure_;
  Clock::time_point start_deadline_;
  std::map<LinkId, Node> nodes_;
  std::set<int> registering_ranks_;  // RankDevice::registers
  std::size_t ranks_present_ = 0;
  std::vector<std::string> turned_away_;
  bool gathering_untold_ = false;  // the nodes have not heard who is missing now
  Clock::time_point next_gathering_;
  // A node has seen another one's connections end, and the cause if nobody knows more.
  struct Suspicion {
    absl::Status cause;
    Clock::time_point until;
  };
  // Where processors are busy the supervisor of an engine that has crashed comes so late. All ranks
  // are to hear within a second.
  static constexpr std::chrono::milliseconds kSuspicionLasts{700};
  std::optional<Suspicion> suspicion_;
  std::unique_ptr<LinkSurvey> survey_;  // while measuring: this
  LinkMatrix first_look_;               // of two, when the first would change the ring
  std::unique_ptr<TrialSurvey> trial_;  // or this
  RingChoice ring_;                     // chosen before the trial
  Clock::time_point measuring_began_;
  Clock::time_point measuring_deadline_;
  RankExchangeSizes rank_exchange_sizes_;  // by what was tried, if anything was
  StoredTrial tried_;      // what flat_all_reduce_bytes follows from; without time: from nothing
  Membership membership_;  // once the job runs; its self says nothing
  CommunicatorTable table_;
  std::map<std::uint32_t, std::unique_ptr<CommunicatorSchedule>> schedules_;
  CommunicatorSchedule* world_ = nullptr;     // the one of all ranks
  std::vector<CommunicatorSchedule*> awake_;  // those that have something to send
};

}  // namespace ringd

#endif  // RINGD_DAEMON_JOBS_COORDINATOR_JOB_COORDINATOR_H_
