// One communicator as the job's coordinator sees it: its schedule, what is planned, who is waited
// for.
#ifndef RINGD_DAEMON_JOBS_COORDINATOR_COMMUNICATOR_SCHEDULE_H_
#define RINGD_DAEMON_JOBS_COORDINATOR_COMMUNICATOR_SCHEDULE_H_

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "backends/communicator.h"
#include "daemon/jobs/coordinator/node_sender.h"
#include "daemon/jobs/membership/membership.h"
#include "daemon/jobs/plans/plan_store.h"
#include "daemon/schedule/coordinator/coordinator.h"
#include "daemon/schedule/coordinator/plan_tuner.h"
#include "daemon/schedule/planning/fusion_policy.h"
#include "daemon/schedule/protocol/growing_pause.h"
#include "proto/base/clock.h"
#include "proto/rpc/peer.pb.h"
#include "proto/shm/ordered_operation.h"

namespace ringd {

// Thread safety: none; the progress thread owns it.
// Ownership: `sender` and Options::plans must outlive it.
class CommunicatorSchedule {
 public:
  struct Options {
    std::uint32_t number = 0;  // within the job; 0: all ranks
    std::string name;          // empty: all ranks
    bool by_order = false;     // its operations are matched by order
    bool learn = true;
    FusionPolicy fusion;
    std::size_t fusion_threshold_bytes = 0;  // the most a bucket may hold
    LinkModel link;
    // For people: whether flat_all_reduce_bytes is ringd's choice, and from what it follows.
    bool choose_flat_all_reduces = false;
    StoredTrial tried;
    PlanStore* plans = nullptr;  // null: none is known, and nothing is kept
    std::string nodes_key;       // under which it is kept; see NodesKey
  };

  // `links`: of the membership's nodes, in their order. What an earlier job knew of the link
  // decides small_all_reduce_bytes in `membership`, if `choose_small` is set.
  CommunicatorSchedule(Options options, Membership& membership, bool choose_small,
                       std::vector<LinkId> links, NodeSender* sender);

  std::uint32_t number() const noexcept { return options_.number; }
  const Coordinator& schedule() const noexcept { return *schedule_; }
  // Whether all its ranks are among these of the job.
  bool HasOnly(const std::set<int>& ranks) const;

  // A scheduling message, measurements, or what has to do with stalls. An error: the node broke the
  // protocol.
  absl::Status OnMessage(LinkId link, const v1::NodeMessage& message, Clock::time_point now);
  // The node is gone, and none of its ranks took part any more.
  void OnNodeGone(LinkId link);

  // Sends what has become due; without `judges` nobody is late. Call it until it is not awake.
  void Advance(Clock::time_point now, bool judges = true);
  bool awake() const noexcept { return dirty_ || inquiry_.open || plan_untold_; }
  // True while Advance must be called although nothing happens.
  bool needs_ticks() const noexcept { return inquiry_.open || plan_untold_; }
  // What was learned, for later jobs.
  void KeepPlan();

  // To all its nodes, but one.
  void Broadcast(v1::CoordinatorMessage message, const LinkId* except = nullptr);

 private:
  struct Node {
    LinkId link;
    MemberNode member;
    NodeIndex index;
  };
  struct Stall {
    Clock::time_point reported;
    double waiting_seconds = 0;  // by then
    std::vector<std::string> tensors;
  };
  struct Inquiry {
    std::uint32_t number = 0;
    bool open = false;
    Clock::time_point asked;
    Stall stall;
    std::map<LinkId, v1::StallAnswer> answers;
  };

  LinkSource UseKeptPlans(CoordinatorConfig& config);
  void TellPlan(Clock::time_point now);
  void OnStallReport(const v1::StallReport& report, Clock::time_point now);
  void Inquire(Stall stall, Clock::time_point now);
  void Conclude(Clock::time_point now);
  // Matching by order: some node says that operations differ. All nodes are to describe theirs.
  // kInvalidArgument: what is announced is no such operation.
  absl::Status InquireInto(const v1::Ready& announced);
  // kInvalidArgument: it is none.
  absl::Status PassDeviceIdOn(const v1::DeviceId& id);

  Options options_;
  std::vector<Node> nodes_;
  NodeSender* sender_;
  std::unique_ptr<Coordinator> schedule_;
  std::unique_ptr<PlanTuner> tuner_;
  bool dirty_ = false;
  bool plan_untold_ = false;  // the nodes have not heard what is planned now
  Clock::time_point next_telling_;
  // What was learned is also kept while a job runs: its end may be that of ringd. That takes the
  // engine some 20 us for each tensor, so what hardly changes is kept ever more rarely.
  GrowingPause keeping_pause_{std::chrono::minutes(1), std::chrono::minutes(16)};
  std::vector<CoordinatorMessage> outgoing_;
  Inquiry inquiry_;
  std::optional<Stall> next_stall_;  // the present one's, and what was reported meanwhile
  bool device_id_told_ = false;
  // Matching by order: of which the nodes were asked last, by place.
  std::array<std::optional<std::uint64_t>, kOrderedPlaces> inquired_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_JOBS_COORDINATOR_COMMUNICATOR_SCHEDULE_H_
