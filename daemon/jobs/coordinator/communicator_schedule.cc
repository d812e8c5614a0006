#include "daemon/jobs/coordinator/communicator_schedule.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/jobs/membership/device_agreement.h"
#include "daemon/jobs/plans/plan_description.h"
#include "daemon/peers/measurement_conversion.h"
#include "daemon/peers/schedule_conversion.h"
#include "daemon/schedule/protocol/ordered_name.h"
#include "proto/base/text.h"

namespace ringd {
namespace {

constexpr std::chrono::nanoseconds kBetweenTellings = std::chrono::milliseconds(500);

// Who does not answer an inquiry by then is told of as one that doesn't.
constexpr auto kInquiryGrace = std::chrono::seconds(1);

// False for one that was made when buckets could be larger.
bool Fits(const KeptPlan& plan, std::size_t most_bytes) {
  return std::all_of(plan.buckets.begin(), plan.buckets.end(), [&](const KeptBucket& bucket) {
    std::size_t bytes = 0;
    for (const KeptTensor& tensor : bucket) bytes += ByteCount(tensor.meta);
    return bucket.size() == 1 || bytes <= most_bytes;
  });
}

}  // namespace

CommunicatorSchedule::CommunicatorSchedule(Options options, Membership& membership,
                                           bool choose_small, std::vector<LinkId> links,
                                           NodeSender* sender)
    : options_(std::move(options)), sender_(sender) {
  CoordinatorConfig config;
  for (std::size_t n = 0; n < membership.nodes.size(); ++n) {
    nodes_.push_back({links[n], membership.nodes[n], NodeIndex(static_cast<int>(n))});
    config.node_names.push_back(membership.nodes[n].name);
  }
  static_assert(CoordinatorConfig{}.max_buckets < kMaxInFlightOperations);
  const std::size_t most = options_.fusion_threshold_bytes;
  config.learn = options_.learn && !options_.by_order;
  if (options_.by_order) config.ordered = options_.name;
  config.fusion_threshold_bytes = options_.fusion.NegotiatedThreshold(most);
  config.launched_bucket_bytes = options_.fusion.LaunchedBytes(most, config.launched_bucket_bytes);
  config.link = options_.link;
  config.link.node_count = membership.node_count();
  const LinkSource source = UseKeptPlans(config);
  AlgorithmOptions& algorithms = membership.algorithms;
  // Between two nodes doubling sends no more than the ring, whatever the link is.
  const bool is_known = source != LinkSource::kAssumed || membership.node_count() == 2;
  if (choose_small && is_known) {
    algorithms.small_all_reduce_bytes = SmallBytesOf(config.link, algorithms.chunk_bytes);
  }
  config.link.small_bytes =
      std::min<std::size_t>(algorithms.small_all_reduce_bytes, algorithms.chunk_bytes);
  config.link.flat_bytes = algorithms.flat_all_reduce_bytes;
  PlanTuner::Options tuning;
  tuning.may_replan = options_.fusion.MayReplan();
  tuner_ = std::make_unique<PlanTuner>(tuning, config.link, source, config.node_names.size());
  schedule_ = std::make_unique<Coordinator>(config, options_.fusion.MakePlanner(most));
  plan_untold_ = membership.node_count() > 1;
}

LinkSource CommunicatorSchedule::UseKeptPlans(CoordinatorConfig& config) {
  LinkSource source = LinkSource::kAssumed;
  if (options_.plans == nullptr || nodes_.size() < 2) return source;
  for (std::shared_ptr<const KeptPlan>& plan : options_.plans->Find(options_.nodes_key)) {
    if (plan->link_measured && source == LinkSource::kAssumed) {
      source = LinkSource::kKept;
      config.link.latency = plan->latency;
      config.link.bytes_per_second = plan->bytes_per_second;
    }
    if (options_.fusion.IsPlanned() && Fits(*plan, options_.fusion_threshold_bytes)) {
      config.kept_plans.push_back(std::move(plan));
    }
  }
  return source;
}

void CommunicatorSchedule::Broadcast(v1::CoordinatorMessage message, const LinkId* except) {
  message.set_communicator(options_.number);
  for (const Node& node : nodes_) {
    if (except == nullptr || node.link != *except) sender_->SendToNode(node.link, message);
  }
}

absl::Status CommunicatorSchedule::OnMessage(LinkId link, const v1::NodeMessage& message,
                                             Clock::time_point now) {
  const auto node = std::find_if(nodes_.begin(), nodes_.end(),
                                 [link](const Node& entry) { return entry.link == link; });
  if (node == nodes_.end()) {
    return absl::InvalidArgumentError("a message for a communicator of which it is no part");
  }
  if (message.has_stall_report()) {
    OnStallReport(message.stall_report(), now);
    return absl::OkStatus();
  }
  if (message.has_stall_answer()) {
    if (inquiry_.open && message.stall_answer().inquiry() == inquiry_.number) {
      inquiry_.answers[link] = message.stall_answer();
      if (inquiry_.answers.size() == nodes_.size()) Conclude(now);
    }
    return absl::OkStatus();
  }
  if (message.has_device_id()) return PassDeviceIdOn(message.device_id());
  dirty_ = true;
  if (message.has_measurements()) {
    absl::StatusOr<NodeMeasurements> measured = FromProto(message.measurements());
    if (!measured.ok()) return measured.status();
    tuner_->OnMeasurements(node->index, *std::move(measured));
    return absl::OkStatus();
  }
  const absl::StatusOr<NodeMessage> scheduling = FromProto(message);
  if (!scheduling.ok()) return scheduling.status();
  if (options_.by_order && message.has_ready()) {
    if (absl::Status status = InquireInto(message.ready()); !status.ok()) return status;
  }
  return schedule_->OnMessage(node->index, *scheduling, now);
}

absl::Status CommunicatorSchedule::InquireInto(const v1::Ready& announced) {
  v1::CoordinatorMessage message;
  for (const v1::ReadyTensor& operation : announced.tensors()) {
    const std::optional<std::uint64_t> number = OrderedNumber(operation.name());
    if (!number.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat("'", CutToLength(operation.name(), 64),
                                                     "' on communicator '", options_.name,
                                                     "', whose operations have numbers"));
    }
    // Each place has one operation at a time.
    std::optional<std::uint64_t>& inquired = inquired_[OrderedPlaceOf(*number)];
    if (std::exchange(inquired, number) == number) continue;
    message.mutable_order_inquiry()->add_operations(operation.name());
  }
  if (message.has_order_inquiry()) Broadcast(std::move(message));
  return absl::OkStatus();
}

bool CommunicatorSchedule::HasOnly(const std::set<int>& ranks) const {
  return std::all_of(nodes_.begin(), nodes_.end(), [&ranks](const Node& node) {
    return std::all_of(
        node.member.ranks.begin(), node.member.ranks.end(),
        [&ranks](const MemberRank& member) { return ranks.contains(member.rank.value()); });
  });
}

absl::Status CommunicatorSchedule::PassDeviceIdOn(const v1::DeviceId& id) {
  if (id.unique_id().size() != kNcclIdBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("an id of ", id.unique_id().size(), " bytes for the GPUs' communicator"));
  }
  // One is enough, whoever has sent it.
  if (std::exchange(device_id_told_, true)) return absl::OkStatus();
  v1::CoordinatorMessage message;
  *message.mutable_device_id() = id;
  Broadcast(std::move(message));
  return absl::OkStatus();
}

void CommunicatorSchedule::OnNodeGone(LinkId link) {
  std::erase_if(nodes_, [link](const Node& node) { return node.link == link; });
}

void CommunicatorSchedule::Advance(Clock::time_point now, bool judges) {
  if (judges && inquiry_.open && now - inquiry_.asked > kInquiryGrace) Conclude(now);
  if (dirty_) {
    dirty_ = false;
    const bool tuned = tuner_->Tune(*schedule_, now);
    outgoing_.clear();
    schedule_->Flush(now, outgoing_);
    for (const CoordinatorMessage& message : outgoing_) {
      if (std::holds_alternative<Schedule>(message) || std::holds_alternative<Retire>(message)) {
        plan_untold_ = true;
        keeping_pause_.StartOver(now);
      }
      Broadcast(ToProto(message));
    }
    plan_untold_ = plan_untold_ || tuned;
    if (tuned && keeping_pause_.IsOver(now)) {
      keeping_pause_.Begin(now);
      KeepPlan();
    }
  }
  if (plan_untold_ && now >= next_telling_) TellPlan(now);
}

// Only people look at it, so it may be a little late, and plans that change often are not all told.
void CommunicatorSchedule::TellPlan(Clock::time_point now) {
  plan_untold_ = false;
  next_telling_ = now + kBetweenTellings;
  v1::CoordinatorMessage message;
  *message.mutable_plan() = DescribePlan(schedule_->Status(), *tuner_, options_.fusion);
  if (LinkModel::MayBeFlat(tuner_->link().node_count)) {
    DescribeFlat(options_.choose_flat_all_reduces, options_.tried,
                 *message.mutable_plan()->mutable_link());
  }
  Broadcast(std::move(message));
}

// Fixed buckets need nobody to remember them.
void CommunicatorSchedule::KeepPlan() {
  if (options_.plans == nullptr || options_.nodes_key.empty() || !options_.fusion.IsPlanned()) {
    return;
  }
  KeptPlan plan = schedule_->Learned();
  if (plan.buckets.empty()) return;
  plan.link_measured = tuner_->source() != LinkSource::kAssumed;
  plan.latency = tuner_->link().latency;
  plan.bytes_per_second = tuner_->link().bytes_per_second;
  options_.plans->Put(options_.nodes_key, std::move(plan));
}

}  // namespace ringd
