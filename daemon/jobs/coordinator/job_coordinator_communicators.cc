// JobCoordinator's communicators: made when all their ranks ask, ended when all have dropped them.
#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/jobs/coordinator/job_coordinator.h"
#include "daemon/jobs/membership/device_agreement.h"
#include "proto/door/secure_random.h"
#include "proto/types/ids.h"

namespace ringd {
namespace {

// Longer ones end a wait for others no sooner than the job's own limits do.
constexpr std::chrono::milliseconds kMostPatience = std::chrono::hours(1);

bool Holds(const MemberNode& node, Rank rank) {
  return std::any_of(node.ranks.begin(), node.ranks.end(),
                     [rank](const MemberRank& member) { return member.rank == rank; });
}

std::uint64_t RandomWireId() {
  std::uint64_t id = 0;
  const std::string random = RandomBytes(sizeof(id));
  std::memcpy(&id, random.data(), sizeof(id));
  return id;
}

}  // namespace

CommunicatorSchedule* JobCoordinator::AddSchedule(std::uint32_t number, const std::string& name,
                                                  bool by_order, Membership& membership) {
  CommunicatorSchedule::Options options;
  options.number = number;
  options.name = name;
  options.by_order = by_order;
  options.learn = options_.learn;
  options.fusion = options_.fusion;
  options.fusion_threshold_bytes = options_.fusion_threshold_bytes;
  options.link = options_.link;
  options.choose_flat_all_reduces = options_.choose_flat_all_reduces;
  options.tried = tried_;
  if (number == 0) {
    options.plans = options_.plans;
    options.nodes_key = NodesKey(options_.uid, membership);
  }
  std::vector<LinkId> links;
  for (const MemberNode& node : membership.nodes) {
    const auto found = std::find_if(nodes_.begin(), nodes_.end(), [&node](const auto& entry) {
      return Holds(entry.second, node.ranks.front().rank);
    });
    links.push_back(found->first);
  }
  // The others have the options that the job's nodes have heard with their membership.
  const bool choose_small = number == 0 && options_.choose_small_all_reduces;
  auto schedule = std::make_unique<CommunicatorSchedule>(std::move(options), membership,
                                                         choose_small, std::move(links), sender_);
  CommunicatorSchedule* const added = schedule.get();
  schedules_.emplace(number, std::move(schedule));
  Wake(added);
  return added;
}

CommunicatorSchedule* JobCoordinator::Find(std::uint32_t number) {
  if (number == 0) return world_;
  const auto found = schedules_.find(number);
  return found == schedules_.end() ? nullptr : found->second.get();
}

void JobCoordinator::Wake(CommunicatorSchedule* schedule) {
  if (!schedule->awake()) return;
  if (std::find(awake_.begin(), awake_.end(), schedule) == awake_.end()) {
    awake_.push_back(schedule);
  }
}

void JobCoordinator::OnCommunicatorAsk(const Node& node, const v1::CommunicatorAsk& ask,
                                       Clock::time_point now) {
  if (!Holds(node, Rank(ask.rank())) || ask.name().empty() ||
      ask.name().size() > kMaxCommunicatorNameBytes || ask.ranks_size() > options_.size) {
    Fail(absl::InternalError(absl::StrCat("ringd on ", node.name,
                                          " broke the protocol: it asks for a communicator that "
                                          "no rank of it can have asked for")));
    return;
  }
  const auto patience = std::min<std::chrono::milliseconds>(
      std::chrono::milliseconds(ask.timeout_ms()), kMostPatience);
  auto answer =
      table_.Ask(ask.rank(), {ask.name(), {ask.ranks().begin(), ask.ranks().end()}, ask.by_order()},
                 patience, now);
  if (const auto* made = std::get_if<AskedCommunicator>(&answer)) {
    Make(*made);
  } else if (const auto* refused = std::get_if<RefusedCommunicator>(&answer)) {
    Refuse(*refused);
  }
}

void JobCoordinator::Make(const AskedCommunicator& asked) {
  const std::uint64_t wire_id = RandomWireId();
  absl::StatusOr<Membership> part = Subset(membership_, asked.ranks, wire_id);
  if (!part.ok()) {
    Refuse({asked.name, asked.ranks, part.status()});
    return;
  }
  const std::uint32_t number = table_.Made(asked);
  v1::CoordinatorMessage message;
  v1::CommunicatorMade& made = *message.mutable_communicator_made();
  made.set_name(asked.name);
  for (const int rank : asked.ranks) made.add_ranks(rank);
  made.set_wire_id(wire_id);
  made.set_by_order(asked.by_order);
  AddSchedule(number, asked.name, asked.by_order, *part)->Broadcast(std::move(message));
}

void JobCoordinator::Refuse(const RefusedCommunicator& refused) {
  v1::CoordinatorMessage message;
  v1::CommunicatorRefused& told = *message.mutable_communicator_refused();
  told.set_name(refused.name);
  for (const int rank : refused.asked) told.add_asked(rank);
  told.set_code(static_cast<int>(refused.why.code()));
  told.set_text(std::string(refused.why.message()));
  for (const auto& [link, node] : nodes_) {
    const bool concerned =
        std::any_of(node.ranks.begin(), node.ranks.end(), [&refused](const MemberRank& member) {
          return std::find(refused.asked.begin(), refused.asked.end(), member.rank.value()) !=
                 refused.asked.end();
        });
    if (concerned) sender_->SendToNode(link, message);
  }
}

void JobCoordinator::OnCommunicatorDrop(LinkId link, const Node& node, std::uint32_t number,
                                        int rank) {
  CommunicatorSchedule* const schedule = number == 0 ? nullptr : Find(number);
  if (schedule == nullptr || !Holds(node, Rank(rank))) return;
  if (!table_.Drop(number, rank)) {
    v1::CoordinatorMessage message;
    message.mutable_communicator_drop()->set_rank(rank);
    schedule->Broadcast(std::move(message), &link);
    return;
  }
  EndCommunicator(*schedule, number);
}

void JobCoordinator::EndCommunicator(CommunicatorSchedule& schedule, std::uint32_t number) {
  v1::CoordinatorMessage message;
  message.mutable_communicator_ended();
  schedule.Broadcast(std::move(message));
  std::erase(awake_, &schedule);
  schedules_.erase(number);
}

void JobCoordinator::OnRankDevice(const Node& node, const v1::RankDevice& device) {
  if (state_ != State::kRunning) return;
  const bool is_bounded =
      device.why().size() <= kMostDeviceWhyBytes && device.kept_size() <= kMostKept &&
      std::all_of(device.kept().begin(), device.kept().end(), [](const v1::KeptCommunicator& kept) {
        return kept.unique_id().size() == kNcclIdBytes;
      });
  if (!Holds(node, Rank(device.rank())) || !is_bounded) {
    Fail(absl::InternalError(absl::StrCat("ringd on ", node.name, " broke the protocol: it tells ",
                                          "of a GPU that no rank of it can have asked for")));
    return;
  }
  if (device.registers()) {
    registering_ranks_.insert(device.rank());
  } else {
    registering_ranks_.erase(device.rank());
  }
  v1::CoordinatorMessage message;
  *message.mutable_rank_device() = device;
  Broadcast(message);
}

void JobCoordinator::OnRanksLeft(LinkId link, Node& node, const v1::RanksLeft& left) {
  const bool are_first =
      std::ranges::all_of(nodes_, [](const auto& entry) { return entry.second.left.empty(); });
  const bool is_its_own = std::all_of(left.ranks().begin(), left.ranks().end(), [&](int rank) {
    return Holds(node, Rank(rank)) && node.left.insert(rank).second;
  });
  if (!is_its_own || state_ == State::kJoining || state_ == State::kMeasuring) {
    Fail(absl::InternalError(absl::StrCat("ringd on ", node.name, " broke the protocol: it tells ",
                                          "that ranks have left which it does not have")));
    return;
  }
  // Before their tensors go, and with them the buckets. Nothing is learned of all ranks afterwards.
  if (are_first && world_ != nullptr && state_ == State::kRunning) world_->KeepPlan();
  v1::CoordinatorMessage relay;
  *relay.mutable_ranks_left() = left;
  BroadcastExcept(link, relay);
  for (const int rank : left.ranks()) {
    const CommunicatorTable::WithoutRank without = table_.OnRankLeft(rank);
    for (const RefusedCommunicator& refused : without.refused) Refuse(refused);
    for (const std::uint32_t number : without.ended) {
      if (CommunicatorSchedule* const schedule = Find(number)) EndCommunicator(*schedule, number);
    }
  }
}

}  // namespace ringd
