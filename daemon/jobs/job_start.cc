// From the membership to the answer to the joins: the communicator, and the rank exchange if the
// nodes can open one.
#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/jobs/job.h"
#include "daemon/lanes/node/local_group.h"
#include "daemon/lanes/rank_exchange/rank_exchange_watch.h"

namespace ringd {

bool Job::ListsOurRanks(const Membership& membership) const {
  const auto& ranks = membership.own().ranks;
  if (membership.size() != options_.size || ranks.size() != members_.size()) return false;
  return std::equal(ranks.begin(), ranks.end(), members_.begin(),
                    [](const MemberRank& listed, const auto& ours) {
                      return listed.rank == ours.second.rank && listed.local_rank == ours.first &&
                             ours.second.session != nullptr;
                    });
}

absl::StatusOr<JobCommunicator::Way> Job::MakeWay(
    const CommunicatorPart& part, std::span<const std::shared_ptr<Session>> sessions) const {
  const Membership& membership = *part.membership;
  if (membership.node_count() == 1) {
    std::vector<std::int32_t> ranks;
    for (const MemberRank& rank : membership.nodes.front().ranks) {
      ranks.push_back(rank.rank.value());
    }
    auto created = LocalGroup::Create(options_.job_id, ranks, sessions, part.number, part.by_order);
    if (!created.ok()) return created.status();
    return JobCommunicator::Way(*std::move(created));
  }
  if (transport_ == nullptr) {
    return absl::FailedPreconditionError("this ringd has no network backend");
  }
  CommunicatorSpec spec;
  spec.wire_id = membership.wire_id;
  spec.key = std::string(AsText(KeyForWire(options_.key, spec.wire_id)));
  spec.self = membership.self;
  spec.algorithms = membership.algorithms;
  spec.connects_at_once = part.number == 0;
  spec.share = {options_.communicator.value(), options_.weight};
  for (const MemberNode& node : membership.nodes) {
    spec.addresses.push_back(node.transport_address);
    spec.node_names.push_back(node.name);
  }
  auto created = transport_->CreateCommunicator(spec);
  if (!created.ok()) return created.status();
  return JobCommunicator::Way(*std::move(created));
}

absl::Status Job::Begin(CommunicatorPart& part) {
  const std::vector<MemberRank>& ours = part.membership->own().ranks;
  std::vector<std::shared_ptr<Session>> sessions;
  for (const MemberRank& rank : ours) {
    const auto member = members_.find(rank.local_rank);
    if (member == members_.end() || member->second.session == nullptr) {
      return absl::AbortedError(absl::StrCat("rank ", rank.rank.value(), " has gone"));
    }
    part.positions.push_back(PositionOf(member->second));
    sessions.push_back(member->second.session);
  }
  absl::StatusOr<JobCommunicator::Way> way = MakeWay(part, sessions);
  if (!way.ok()) {
    return absl::Status(way.status().code(), absl::StrCat("ringd on ", options_.node_name, ": ",
                                                          way.status().message()));
  }
  JobCommunicator::Options options;
  options.id = part.id;
  options.number = part.number;
  options.name = part.name;
  options.by_order = part.by_order;
  if (part.number != 0) {
    options.trace = &world_.communicator->trace();
    options.positions = part.positions;
  }
  options.job_id = options_.job_id;
  options.reducers = options_.reducers;
  options.isolated = options_.isolated;
  options.devices = options_.devices;
  options.connect_patience = options_.start_timeout;
  options.operation_timeout = options_.operation_timeout;
  options.has_left = [this](Rank rank) {
    return std::ranges::find(left_ranks_, rank.value()) != left_ranks_.end();
  };
  options.has_kept = [this](Rank rank, absl::string_view unique_id, std::uint64_t launched) {
    return agreement_.HasKept(rank.value(), unique_id, launched);
  };
  options.scheduler.first_rank = ours.front().rank;
  part.communicator = std::make_unique<JobCommunicator>(
      std::move(options), part.membership, std::move(sessions), *std::move(way), link_.get());
  return absl::OkStatus();
}

void Job::OnMembership(const v1::Membership& message, Clock::time_point now) {
  if (state_ != State::kJoining) return;
  // Sent before the coordinator could know of a death here: TellDeaths says soon why the job ends.
  if (FirstLost() != nullptr) return;
  absl::StatusOr<Membership> checked = FromProto(message);
  if (checked.ok() && !ListsOurRanks(*checked)) {
    checked = absl::InvalidArgumentError(
        absl::StrCat("the coordinator at ", options_.rendezvous,
                     " sent a membership that does not list the ranks of ", options_.node_name));
  }
  if (!checked.ok()) {
    Fail(checked.status());
    return;
  }
  EndProbe();
  membership_ = std::make_shared<const Membership>(*std::move(checked));
  world_.id = options_.communicator;
  world_.membership = membership_;
  if (absl::Status status = Begin(world_); !status.ok()) {
    Fail(status);
    return;
  }
  state_ = State::kRunning;
  LogInfo(absl::StrCat("all ", options_.size, " ranks have joined, on ", membership_->node_count(),
                       membership_->node_count() == 1 ? " node" : " nodes"),
          Fields());
  BeginRankExchange(now);
  if (rank_exchange_setup_ == nullptr) AnswerJoins(absl::OkStatus());
}

void Job::AnswerJoins(const absl::Status& status) {
  for (auto& [local_rank, member] : members_) {
    if (!member.done) continue;
    v1::JoinReply reply;
    if (status.ok()) {
      reply.set_communicator(options_.communicator.value());
      reply.set_generation(membership_->generation);
      reply.set_node_count(membership_->node_count());
      reply.set_node_index(membership_->self.value());
      reply.set_cross_rank(membership_->CrossRank(local_rank));
      reply.set_cross_size(membership_->CrossSize(local_rank));
      const auto timeout = std::chrono::ceil<std::chrono::milliseconds>(options_.operation_timeout);
      reply.set_operation_timeout_ms(static_cast<std::uint32_t>(
          std::min<std::int64_t>(timeout.count(), std::numeric_limits<std::uint32_t>::max())));
      reply.set_node_name(options_.node_name);
      reply.set_daemon_version(options_.daemon_version);
      reply.set_homogeneous(membership_->Homogeneous());
      reply.set_combines_locally(world_.communicator->CombinesLocally());
      const RankExchangeWatch* const rank_exchange = world_.communicator->rank_exchange();
      reply.set_rank_exchange_connections(
          rank_exchange == nullptr ? 0 : rank_exchange->connection_count());
    }
    const JoinCallback done = std::exchange(member.done, nullptr);
    done(status, reply);
  }
}

void Job::BeginRankExchange(Clock::time_point now) {
  const RankExchangeOffer& offer = membership_->rank_exchange;
  no_rank_exchange_ = offer.why_not;
  if (!offer.offered || membership_->node_count() == 1) return;
  if (options_.rank_exchange == nullptr) {
    no_rank_exchange_ = absl::StrCat("ringd on ", options_.node_name, " takes no part");
    return;
  }
  RankExchangePlan plan;
  plan.wire_id = membership_->wire_id;
  plan.key = std::string(AsText(KeyForExchange(options_.key, plan.wire_id)));
  plan.self = static_cast<std::uint32_t>(membership_->self.value());
  plan.knomial = offer.has_knomial();
  for (const MemberNode& node : membership_->nodes) {
    plan.node_names.push_back(node.name);
    plan.addresses.push_back(node.rank_exchange_address);
  }
  rank_exchange_setup_ =
      std::make_unique<RankExchangeSetup>(std::move(plan), options_.rank_exchange, Fields(), now);
}

std::size_t Job::AdvanceRankExchange(Clock::time_point now) {
  if (rank_exchange_setup_ == nullptr) return 0;
  const RankExchangeSetup::State state = rank_exchange_setup_->Advance(now);
  if (state == RankExchangeSetup::State::kPending) return 0;
  absl::Status status = rank_exchange_setup_->failure();
  if (state == RankExchangeSetup::State::kOpen) {
    status = world_.communicator->OpenRankExchange(rank_exchange_setup_->TakeConnections());
  }
  rank_exchange_setup_.reset();
  if (status.ok()) {
    LogDebug(absl::StrCat("the rank exchange is open, for tensors of up to ",
                          world_.communicator->rank_exchange()->limit_bytes(), " bytes"),
             Fields());
  } else {
    no_rank_exchange_ = std::string(status.message());
    LogWarning(absl::StrCat("the job does without a rank exchange: ", status.message()), Fields());
  }
  AnswerJoins(absl::OkStatus());
  return 1;
}

std::string Job::DescribeBreak(const RankExchangeBreak& broken) const {
  const std::string where = broken.node < membership_->nodes.size()
                                ? DescribeNode(membership_->nodes[broken.node])
                                : absl::StrCat("node ", broken.node);
  switch (broken.reason) {
    case RankExchangeBreak::Reason::kConnection:
      return absl::StrCat(
          "the connection of the rank exchange to ", where, ": ",
          broken.error == 0 ? "the other side closed it" : std::strerror(broken.error));
    case RankExchangeBreak::Reason::kProtocol:
      return absl::StrCat("the connection of the rank exchange to ", where,
                          " carried what makes no sense");
    case RankExchangeBreak::Reason::kStopped:
      return absl::StrCat(where, " has ended the rank exchange");
    case RankExchangeBreak::Reason::kNone:
      break;
  }
  return "the rank exchange has ended";
}

void Job::LookAtRankExchange(Clock::time_point now) {
  const RankExchangeWatch* const rank_exchange = world_.communicator->rank_exchange();
  if (rank_exchange == nullptr) return;
  const std::optional<RankExchangeBreak> broken = rank_exchange->Broken(now);
  if (!broken.has_value()) return;
  no_rank_exchange_ = DescribeBreak(*broken);
  if (rank_exchange->LacksDecision()) {
    // Nobody can know whether other nodes have the result.
    Propose(absl::AbortedError(absl::StrCat(no_rank_exchange_, " ", DescribeInFlight())));
    return;
  }
  if (rank_exchange_end_told_) return;
  rank_exchange_end_told_ = true;
  // It breaks as well when the ranks of a node leave in order.
  if (anyone_left_) return;
  LogWarning(absl::StrCat("the job goes on without its rank exchange: ", no_rank_exchange_),
             Fields());
}

}  // namespace ringd
