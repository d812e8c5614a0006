#include "daemon/jobs/coordinator/job_coordinator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/jobs/coordinator/ring_order.h"
#include "proto/base/text.h"

namespace ringd {
namespace {

v1::CoordinatorMessage FailureMessage(const absl::Status& cause, bool node_lost = false) {
  v1::CoordinatorMessage message;
  message.mutable_failure()->set_node_lost(node_lost);
  message.mutable_failure()->set_code(static_cast<int>(cause.code()));
  message.mutable_failure()->set_text(std::string(cause.message()));
  return message;
}

absl::Status ToStatus(const v1::Failure& failure) {
  const auto code = static_cast<absl::StatusCode>(failure.code());
  return absl::Status(code == absl::StatusCode::kOk ? absl::StatusCode::kAborted : code,
                      CutToLength(failure.text(), 4096));
}

}  // namespace

JobCoordinator::JobCoordinator(Options options, NodeSender* sender, Clock::time_point now)
    : options_(std::move(options)),
      sender_(sender),
      start_deadline_(now + options_.start_timeout),
      table_(options_.size) {}

bool JobCoordinator::NeedsTicks() const noexcept {
  return state_ == State::kJoining || state_ == State::kMeasuring || table_.anyone_waits() ||
         (suspicion_.has_value() && state_ != State::kFailed) ||
         std::any_of(awake_.begin(), awake_.end(),
                     [](const auto* schedule) { return schedule->needs_ticks(); });
}

LogFields JobCoordinator::Fields() const {
  return {.job = options_.job_id,
          .communicator = options_.communicator.value(),
          .generation = options_.generation};
}

void JobCoordinator::Refuse(LinkId link, const absl::Status& reason) {
  sender_->SendToNode(link, FailureMessage(reason));
  sender_->CloseNode(link, reason);
  const auto found = nodes_.find(link);
  if (found == nodes_.end()) return;
  ranks_present_ -= found->second.ranks.size();
  gathering_untold_ = true;
  nodes_.erase(found);
}

void JobCoordinator::AddNode(LinkId link, const v1::Hello& hello, Clock::time_point now) {
  if (state_ != State::kJoining) {
    Refuse(link, state_ == State::kFailed
                     ? failure_
                     : absl::FailedPreconditionError(absl::StrCat(
                           "job '", options_.job_id, "' has started without ", hello.node_name())));
    return;
  }
  const std::string present = DescribePresent();
  Node node;
  node.name = hello.node_name();
  node.transport_address = hello.transport_address();
  node.local_size = hello.local_size();
  node.start_timeout = std::chrono::milliseconds(hello.start_timeout_ms());
  node.rank_exchange_address = hello.rank_exchange_address();
  nodes_.emplace(link, std::move(node));
  if (hello.size() != options_.size) {
    Fail(absl::InvalidArgumentError(absl::StrCat("job '", options_.job_id, "': the ranks on ",
                                                 hello.node_name(), " say size ", hello.size(),
                                                 ", those on ", present, " said ", options_.size)));
    return;
  }
  if (hello.fusion() != options_.asked_fusion) {
    const auto asked = [](absl::string_view fusion) {
      return fusion.empty() ? std::string("nothing")
                            : absl::StrCat("'", CutToLength(fusion, 64), "'");
    };
    Fail(absl::InvalidArgumentError(
        absl::StrCat("job '", options_.job_id, "': the ranks on ", hello.node_name(), " ask for ",
                     asked(hello.fusion()), " as its fusion (RINGD_FUSION), those on ", present,
                     " for ", asked(options_.asked_fusion))));
    return;
  }
  if (const std::uint32_t weight = JobWeightOrDefault(hello.weight()); weight != options_.weight) {
    Fail(absl::InvalidArgumentError(absl::StrCat(
        "job '", options_.job_id, "': the ranks on ", hello.node_name(), " say weight ", weight,
        ", those on ", present, " said ", options_.weight, " (RINGD_WEIGHT)")));
    return;
  }
  if (hello.start_timeout_ms() > 0) {
    // The most patient node decides: it may know that a slow one is coming.
    start_deadline_ =
        std::max(start_deadline_, now + std::chrono::milliseconds(hello.start_timeout_ms()));
  }
}

void JobCoordinator::AddRank(LinkId link, const v1::RankInfo& info) {
  Node& node = nodes_.at(link);
  if (state_ != State::kJoining) {
    // A node that takes part already; it would fail for itself, and leave the others waiting.
    Fail(absl::InvalidArgumentError(absl::StrCat("rank ", info.rank(), " joined job '",
                                                 options_.job_id, "' on ", node.name,
                                                 " after all ranks had joined")));
    return;
  }
  if (info.rank() < 0 || info.rank() >= options_.size ||
      static_cast<int>(node.ranks.size()) >= node.local_size) {
    Refuse(link,
           absl::InvalidArgumentError(absl::StrCat("rank ", info.rank(), " does not fit job '",
                                                   options_.job_id, "' of ", options_.size)));
    return;
  }
  for (const auto& [other, holder] : nodes_) {
    for (const MemberRank& member : holder.ranks) {
      if (member.rank.value() != info.rank()) continue;
      Fail(absl::AlreadyExistsError(absl::StrCat(
          "two processes claim rank ", info.rank(), " of job '", options_.job_id, "': pid ",
          member.pid, " on ", holder.name, " and pid ", info.pid(), " on ", node.name)));
      return;
    }
  }
  node.ranks.push_back(MemberRank{Rank(info.rank()), LocalRank(info.local_rank()), info.pid(),
                                  PrintableProgram(info.program())});
  ++ranks_present_;
  gathering_untold_ = true;
}

void JobCoordinator::StartIfComplete(Clock::time_point now) {
  if (state_ != State::kJoining || static_cast<int>(ranks_present_) != options_.size) return;
  // Nodes by their lowest rank, so that node 0 holds rank 0.
  std::vector<Node*> order;
  for (auto& [link, node] : nodes_) {
    std::sort(node.ranks.begin(), node.ranks.end(),
              [](const MemberRank& a, const MemberRank& b) { return a.local_rank < b.local_rank; });
    order.push_back(&node);
  }
  const auto lowest = [](const Node* node) {
    return std::min_element(node->ranks.begin(), node->ranks.end(),
                            [](const auto& a, const auto& b) { return a.rank < b.rank; })
        ->rank;
  };
  for (auto it = nodes_.begin(); it != nodes_.end();) {
    const auto next = std::next(it);
    if (it->second.ranks.empty()) {
      std::erase(order, &it->second);
      Refuse(it->first,
             absl::InvalidArgumentError(absl::StrCat("job '", options_.job_id,
                                                     "' has started without a rank of this node")));
    }
    it = next;
  }
  std::sort(order.begin(), order.end(),
            [&](const Node* a, const Node* b) { return lowest(a) < lowest(b); });
  ChooseRing(std::move(order), now);
}

void JobCoordinator::Start(const std::vector<Node*>& order, RingChoice ring) {
  state_ = State::kRunning;
  Membership membership;
  membership.ring = std::move(ring);
  membership.ring.misfit = DescribeMisfit(options_.ring_order, NamesOf(order));
  if (!membership.ring.misfit.empty()) {
    LogWarning(absl::StrCat("ring_order ", membership.ring.misfit), Fields());
  }
  membership.wire_id = options_.wire_id;
  membership.generation = options_.generation;
  membership.algorithms = options_.algorithms;
  for (std::size_t i = 0; i < order.size(); ++i) {
    order[i]->index = NodeIndex(static_cast<int>(i));
    membership.nodes.push_back(*order[i]);
  }
  if (tried_.times.empty() && order.size() > 1) {
    rank_exchange_sizes_.flat = options_.algorithms.flat_all_reduce_bytes / (order.size() - 1);
  }
  membership.rank_exchange = OfferRankExchange(membership, rank_exchange_sizes_);
  world_ = AddSchedule(0, "", /*by_order=*/false, membership);
  membership_ = membership;
  v1::CoordinatorMessage message;
  *message.mutable_membership() = ToProto(membership);
  for (const auto& [link, node] : nodes_) {
    message.mutable_membership()->set_node_index(node.index.value());
    sender_->SendToNode(link, message);
  }
}

void JobCoordinator::OnMessage(LinkId link, v1::NodeMessage message, Clock::time_point now) {
  const auto found = nodes_.find(link);
  if (found == nodes_.end() || state_ == State::kFailed) return;
  Node& node = found->second;
  switch (message.body_case()) {
    case v1::NodeMessage::kRankJoined:
      AddRank(link, message.rank_joined().rank());
      StartIfComplete(now);
      return;
    case v1::NodeMessage::kLinkReport:
      OnLinkReport(link, message.link_report(), now);
      return;
    case v1::NodeMessage::kTrialReport:
      OnTrialReport(link, message.trial_report());
      return;
    case v1::NodeMessage::kFailure:
      OnFailure(node, message.failure(), now);
      return;
    case v1::NodeMessage::kRanksLeft:
      OnRanksLeft(link, node, message.ranks_left());
      return;
    case v1::NodeMessage::kCommunicatorAsk:
      if (state_ == State::kRunning) {
        OnCommunicatorAsk(node, message.communicator_ask(), now);
      }
      return;
    case v1::NodeMessage::kCommunicatorDrop:
      OnCommunicatorDrop(link, node, message.communicator(), message.communicator_drop().rank());
      return;
    case v1::NodeMessage::kRankDevice:
      OnRankDevice(node, message.rank_device());
      return;
    case v1::NodeMessage::kTraceQuestion:
      if (state_ == State::kRunning) AskForTraces(node, message.trace_question());
      return;
    case v1::NodeMessage::kTraceAnswer:
      if (state_ == State::kRunning) {
        PassTraceOn(node, std::move(*message.mutable_trace_answer()));
      }
      return;
    case v1::NodeMessage::kClockPing: {
      v1::CoordinatorMessage pong;
      pong.mutable_clock_pong()->set_sent_ns(message.clock_ping().sent_ns());
      pong.mutable_clock_pong()->set_now_ns(MonotonicNanos());
      sender_->SendToNode(link, std::move(pong));
      return;
    }
    default:
      break;
  }
  CommunicatorSchedule* const schedule = Find(message.communicator());
  absl::Status status;
  if (world_ == nullptr) {
    status = absl::FailedPreconditionError("a scheduling message before the job has started");
  } else if (schedule != nullptr) {
    if (message.has_device_id()) {
      message.mutable_device_id()->set_registers(schedule->HasOnly(registering_ranks_));
    }
    status = schedule->OnMessage(link, message, now);
    if (status.ok()) Wake(schedule);
  }
  // Without one: it has ended, and the node had not heard of that.
  if (!status.ok()) {
    Fail(absl::InternalError(
        absl::StrCat("ringd on ", node.name, " broke the protocol: ", status.message())));
  }
}

void JobCoordinator::OnFailure(const Node& node, const v1::Failure& failure,
                               Clock::time_point now) {
  const bool is_here = std::any_of(nodes_.begin(), nodes_.end(), [&](const auto& entry) {
    return entry.second.name == failure.lost_node();
  });
  const absl::Status cause = ToStatus(failure);
  // A node whose own time is up: who has not joined is known here.
  if (state_ == State::kJoining && absl::IsDeadlineExceeded(cause)) {
    return FailToStart(node.start_timeout);
  }
  if (!is_here || state_ == State::kFailed) return Fail(cause);
  // Its own connection is about to end, and says more.
  if (!suspicion_.has_value()) suspicion_ = Suspicion{cause, now + kSuspicionLasts};
}

void JobCoordinator::OnLinkLost(LinkId link, const absl::Status& why) {
  const auto found = nodes_.find(link);
  if (found == nodes_.end()) return;
  const Node node = std::move(found->second);
  nodes_.erase(found);
  const bool joining = state_ == State::kJoining;
  if (joining) {
    ranks_present_ -= node.ranks.size();
    if (nodes_.empty()) state_ = State::kFailed;
  }
  if (node.left.size() == node.ranks.size()) {
    for (const auto& [number, schedule] : schedules_) schedule->OnNodeGone(link);
    return;
  }
  // A supervisor's word on its engine.
  if (absl::IsDataLoss(why)) return Fail(absl::AbortedError(why.message()));
  // What isn't a lost connection's is a ringd's own word.
  const bool lost = absl::IsUnavailable(why) || why.ok();
  if (lost) LogInfo(absl::StrCat("the stream of ", node.name, " ended: ", why.message()), Fields());
  // Its ranks have heard that it is over, so nobody waits for them until the start deadline.
  const absl::string_view early = joining ? " before all ranks had joined" : "";
  FailWith(absl::AbortedError(lost ? absl::StrCat(DescribeLostNode(node), early)
                                   : absl::StrCat("ringd on ", DescribeNode(node), " has gone",
                                                  early, ": ", why.message())),
           lost);
}

void JobCoordinator::Advance(Clock::time_point now, bool judges) {
  if (judges) Judge(now);
  if (state_ == State::kJoining && gathering_untold_ && now >= next_gathering_) {
    TellWhoIsMissing(now);
  }
  if (state_ != State::kRunning) return;
  std::erase_if(awake_, [now, judges](CommunicatorSchedule* schedule) {
    schedule->Advance(now, judges);
    return !schedule->awake();
  });
}

void JobCoordinator::Judge(Clock::time_point now) {
  if (suspicion_.has_value() && now >= suspicion_->until) Fail(suspicion_->cause);
  if (state_ == State::kJoining && now >= start_deadline_) FailToStart(options_.start_timeout);
  EndLateMeasuring(now);
  if (state_ != State::kRunning) return;
  for (const RefusedCommunicator& refused : table_.Expire(now)) Refuse(refused);
}

void JobCoordinator::Broadcast(const v1::CoordinatorMessage& message) {
  for (const auto& [link, node] : nodes_) sender_->SendToNode(link, message);
}

void JobCoordinator::BroadcastExcept(LinkId but, const v1::CoordinatorMessage& message) {
  for (const auto& [link, node] : nodes_) {
    if (link != but) sender_->SendToNode(link, message);
  }
}

void JobCoordinator::Fail(const absl::Status& cause) { FailWith(cause, /*node_lost=*/false); }

void JobCoordinator::FailWith(const absl::Status& cause, bool node_lost) {
  if (state_ == State::kFailed) return;
  if (world_ != nullptr) world_->KeepPlan();
  survey_.reset();
  trial_.reset();
  state_ = State::kFailed;
  failure_ = cause;
  Broadcast(FailureMessage(cause, node_lost));
}

}  // namespace ringd
