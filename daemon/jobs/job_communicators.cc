// The job's communicators besides the one of all ranks: how they come, how they go, whose turn it
// is.
#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/jobs/job.h"
#include "proto/base/text.h"
#include "proto/types/ids.h"

namespace ringd {
namespace {

// After the last work of one it is advanced at each tick for so long: what it has measured is told.
constexpr auto kCooling = std::chrono::seconds(1);

// Nobody tells ringd when the ranks of one node begin to wait for each other: it looks. Looks at a
// thousand that idle are a small part of its time.
constexpr auto kLookInterval = std::chrono::milliseconds(500);

// For which one rank may wait at once, from several threads.
constexpr std::ptrdiff_t kMostAsks = 64;

}  // namespace

std::vector<CommunicatorPart*> Job::Parts() {
  std::vector<CommunicatorPart*> parts;
  if (world_.communicator != nullptr) parts.push_back(&world_);
  for (const auto& [number, part] : parts_) {
    if (part->communicator != nullptr) parts.push_back(part.get());
  }
  return parts;
}

std::vector<const CommunicatorPart*> Job::Parts() const {
  const std::vector<CommunicatorPart*> parts = const_cast<Job*>(this)->Parts();
  return {parts.begin(), parts.end()};
}

CommunicatorPart* Job::Find(std::uint32_t number) {
  if (number == 0) return &world_;
  const auto found = parts_.find(number);
  return found == parts_.end() ? nullptr : found->second.get();
}

CommunicatorPart* Job::Find(CommunicatorId id) {
  if (id == options_.communicator) return &world_;
  const auto found = parts_by_id_.find(id.value());
  return found == parts_by_id_.end() ? nullptr : found->second;
}

std::string Job::DescribeInFlight() const {
  std::vector<std::string> texts;
  for (const CommunicatorPart* const part : Parts()) {
    if (part->number != 0 && part->communicator->Idle()) continue;
    std::string text = part->communicator->DescribeInFlight();
    if (part->number == 0 || text != kNothingInFlight) texts.push_back(std::move(text));
  }
  // Nothing of all ranks' is worth a word if there is something else.
  if (texts.size() > 1 && texts.front() == kNothingInFlight) texts.erase(texts.begin());
  return absl::StrJoin(texts, ", and ");
}

void Job::Activate(CommunicatorPart& part, Clock::time_point now) {
  part.cools_until = now + kCooling;
  part.next_look = now;
  if (part.active || part.communicator == nullptr || !part.communicator->NeedsAdvance()) return;
  part.active = true;
  active_.push_back(&part);
}

std::size_t Job::AdvanceActive(Clock::time_point now) {
  std::size_t work = 0;
  for (std::size_t i = 0; i < active_.size();) {
    CommunicatorPart& part = *active_[i];
    const absl::StatusOr<std::size_t> advanced = part.communicator->Advance(now);
    if (!advanced.ok()) {
      Propose(advanced.status());
      return work + 1;
    }
    work += *advanced;
    if (*advanced > 0 || !part.communicator->Idle()) {
      ++i;
      continue;
    }
    part.active = false;
    part.cools_until = now + kCooling;
    parts_need_ticks_ = true;
    active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return work;
}

void Job::DropEnded() {
  std::erase_if(parts_, [this](const auto& entry) {
    const CommunicatorPart& part = *entry.second;
    if (!part.ended || (part.communicator != nullptr && !part.communicator->Quiet())) return false;
    std::erase(active_, &part);
    parts_by_id_.erase(part.id.value());
    return true;
  });
}

void Job::TickParts(Clock::time_point now) {
  if (parts_need_ticks_) DropEnded();
  parts_need_ticks_ = false;
  for (const auto& [number, part] : parts_) {
    if (part->ended) parts_need_ticks_ = true;
    if (part->communicator == nullptr || (!part->active && now < part->next_look)) continue;
    Tick(*part, now);
    if (state_ != State::kRunning || agreed_.pending()) return;
    const bool cools = !part->active && now < part->cools_until;
    if (cools && part->communicator->NeedsAdvance()) {
      if (const auto advanced = part->communicator->Advance(now); !advanced.ok()) {
        return Propose(advanced.status());
      }
    }
    const bool again = cools || !part->communicator->Idle();
    part->next_look = again ? now : now + kLookInterval;
    if (again) parts_need_ticks_ = true;
  }
}

void Job::CreateCommunicator(const Session& session, const v1::CreateCommunicatorRequest& request,
                             CreateCommunicatorCallback done) {
  const Member* const member = Find(session);
  const auto refuse = [&](const absl::Status& why) { done(why, {}); };
  if (state_ == State::kFailed) return refuse(failure());
  if (member == nullptr || member->left || state_ != State::kRunning || link_ == nullptr) {
    return refuse(absl::FailedPreconditionError("this process has not joined a job that runs"));
  }
  if (request.name().empty() || request.name().size() > kMaxCommunicatorNameBytes) {
    return refuse(absl::InvalidArgumentError(absl::StrCat("a communicator's name has 1 to ",
                                                          kMaxCommunicatorNameBytes, " bytes, not ",
                                                          request.name().size())));
  }
  if (request.ranks_size() < 1 || request.ranks_size() > options_.size) {
    return refuse(absl::InvalidArgumentError(
        absl::StrCat("communicator '", request.name(), "': ", request.ranks_size(),
                     " ranks are named; the job has ", options_.size)));
  }
  const int rank = member->rank.value();
  const std::vector<int> ranks(request.ranks().begin(), request.ranks().end());
  if (request.again()) {
    const auto made = std::ranges::find_if(parts_, [&](const auto& entry) {
      const CommunicatorPart& part = *entry.second;
      return part.communicator != nullptr && part.name == request.name() && part.ranks == ranks &&
             part.by_order == request.by_order() && part.MemberAt(PositionOf(*member)) >= 0 &&
             part.dropped.empty() && !part.ended;
    });
    if (made != parts_.end()) return done(absl::OkStatus(), Describe(*made->second));
  }
  const auto before = std::ranges::find_if(asks_, [&](const Ask& ask) {
    return ask.rank == rank && ask.name == request.name() && ask.ranks == ranks &&
           ask.by_order == request.by_order();
  });
  if (before != asks_.end()) {
    // Its caller has been interrupted, as a rule. What has been asked for stays so.
    std::swap(before->done, done);
    return refuse(absl::AbortedError(absl::StrCat("communicator '", request.name(), "': rank ",
                                                  rank, " has asked for it again")));
  }
  const auto asked = std::count_if(asks_.begin(), asks_.end(),
                                   [rank](const Ask& ask) { return ask.rank == rank; });
  if (asked >= kMostAsks) {
    return refuse(absl::ResourceExhaustedError(
        absl::StrCat("rank ", rank, " waits for ", asked, " communicators already")));
  }
  v1::NodeMessage message;
  v1::CommunicatorAsk& ask = *message.mutable_communicator_ask();
  ask.set_rank(rank);
  ask.set_name(request.name());
  *ask.mutable_ranks() = request.ranks();
  ask.set_by_order(request.by_order());
  const auto patience = std::chrono::ceil<std::chrono::milliseconds>(options_.start_timeout);
  ask.set_timeout_ms(request.timeout_ms() > 0 ? request.timeout_ms()
                                              : static_cast<std::uint32_t>(patience.count()));
  asks_.push_back({rank, request.name(), ranks, request.by_order(), std::move(done), {}, {}});
  link_->Send(std::move(message));
}

v1::CreateCommunicatorReply Job::Describe(const CommunicatorPart& part) {
  v1::CreateCommunicatorReply reply;
  reply.set_communicator(part.id.value());
  reply.set_number(part.number);
  reply.set_node_count(part.membership->node_count());
  reply.set_node_index(part.membership->self.value());
  reply.set_combines_locally(part.communicator->CombinesLocally());
  return reply;
}

void Job::AnswerAsks(const std::function<bool(const Ask&)>& fits, const absl::Status& status,
                     const v1::CreateCommunicatorReply& reply) {
  // The callbacks may ask for more.
  std::vector<Ask> answered;
  std::erase_if(asks_, [&](Ask& ask) {
    if (!fits(ask)) return false;
    answered.push_back(std::move(ask));
    return true;
  });
  for (Ask& ask : answered) ask.done(status, reply);
}

const Job::Member* Job::WhoHasLeft(const CommunicatorPart& part) const {
  for (const MemberRank& rank : part.membership->own().ranks) {
    const auto found = members_.find(rank.local_rank);
    if (found != members_.end() && found->second.left) return &found->second;
  }
  return nullptr;
}

void Job::OnCommunicatorMade(std::uint32_t number, const v1::CommunicatorMade& made,
                             Clock::time_point now) {
  if (state_ != State::kRunning || FirstLost() != nullptr) return;
  const std::vector<int> ranks(made.ranks().begin(), made.ranks().end());
  const auto fits = [&](const Ask& ask) { return ask.name == made.name() && ask.ranks == ranks; };
  // Whoever coordinates makes nothing here that no rank of this node wants. One that has left since
  // it asked needs none.
  if (std::none_of(asks_.begin(), asks_.end(), fits)) return;
  auto part = std::make_unique<CommunicatorPart>();
  part->number = number;
  part->name = made.name();
  part->ranks = ranks;
  part->by_order = made.by_order();
  absl::StatusOr<Membership> membership = Subset(*membership_, part->ranks, made.wire_id());
  if (!membership.ok() || membership->self.value() < 0 || Find(number) != nullptr ||
      options_.next_communicator == nullptr) {
    Propose(absl::InternalError(absl::StrCat("the coordinator at ", options_.rendezvous,
                                             " broke the protocol: communicator ", number,
                                             " makes no sense here")));
    return;
  }
  part->membership = std::make_shared<const Membership>(*std::move(membership));
  if (const Member* const gone = WhoHasLeft(*part)) {
    const absl::Status why = absl::AbortedError(
        absl::StrCat("communicator '", part->name, "': ", NameOf(*gone), ", left job '",
                     options_.job_id, "' (shutdown) while it was made"));
    for (const MemberRank& rank : part->membership->own().ranks) TellDropped(number, rank.rank);
    AnswerAsks(fits, why, {});
    return;
  }
  part->id = options_.next_communicator();
  if (absl::Status status = Begin(*part); !status.ok()) {
    Propose(absl::Status(status.code(),
                         absl::StrCat("communicator '", part->name, "': ", status.message())));
    return;
  }
  const v1::CreateCommunicatorReply reply = Describe(*part);
  if (const auto unsaid = communicator_log_.Pass(now)) {
    LogInfo(absl::StrCat("communicator '", part->name, "' (", number, ") has ", part->ranks.size(),
                         " ranks, on ", part->membership->node_count(),
                         part->membership->node_count() == 1 ? " node" : " nodes",
                         *unsaid == 0 ? "" : absl::StrCat("; ", *unsaid, " others were made")),
            Fields());
  }
  parts_by_id_[part->id.value()] = part.get();
  Activate(*parts_.emplace(number, std::move(part)).first->second, now);
  AnswerAsks(fits, absl::OkStatus(), reply);
}

void Job::OnOrderInquiry(CommunicatorPart& part, const v1::OrderInquiry& inquiry,
                         Clock::time_point now) {
  if (part.communicator == nullptr) return;
  for (const std::string& operation : inquiry.operations()) {
    if (absl::Status status = part.communicator->OnOrderInquiry(operation); !status.ok()) {
      Propose(status);
      return;
    }
  }
  Activate(part, now);
}

void Job::OnCommunicatorRefused(const v1::CommunicatorRefused& refused) {
  const auto code = static_cast<absl::StatusCode>(refused.code());
  const absl::Status why(code == absl::StatusCode::kOk ? absl::StatusCode::kAborted : code,
                         CutToLength(refused.text(), 4096));
  const std::set<int> asked(refused.asked().begin(), refused.asked().end());
  AnswerAsks([&](const Ask& ask) { return ask.name == refused.name() && asked.contains(ask.rank); },
             why, {});
}

absl::Status Job::DestroyCommunicator(const Session& session, CommunicatorId communicator,
                                      Clock::time_point now) {
  const Member* const member = Find(session);
  CommunicatorPart* const part = Find(communicator);
  if (state_ == State::kFailed) return failure();
  if (member == nullptr) return absl::FailedPreconditionError("this process has joined no job");
  const int place = part == nullptr ? -1 : part->MemberAt(PositionOf(*member));
  if (place < 0 || part->HasDropped(member->rank.value())) {
    return absl::NotFoundError(
        absl::StrCat("this rank has no communicator ", communicator.value(), " (any more)"));
  }
  if (part->number == 0) {
    return absl::FailedPreconditionError(
        "the communicator of all ranks is there as long as the job");
  }
  if (const std::optional<std::string> tensor = part->communicator->InFlightOf(place)) {
    return absl::FailedPreconditionError(absl::StrCat("communicator '", part->name,
                                                      "' is in use: tensor '", *tensor,
                                                      "' is in flight; wait for it first"));
  }
  static_cast<void>(part->communicator->Leave(place));
  OnCommunicatorDropped(*part, member->rank.value(), now);
  TellDropped(part->number, member->rank);
  return absl::OkStatus();
}

void Job::TellDropped(std::uint32_t number, Rank rank) {
  if (link_ == nullptr) return;
  v1::NodeMessage message;
  message.set_communicator(number);
  message.mutable_communicator_drop()->set_rank(rank.value());
  link_->Send(std::move(message));
}

void Job::OnCommunicatorDropped(CommunicatorPart& part, int rank, Clock::time_point now) {
  if (part.dropped.size() < part.ranks.size() && !part.HasDropped(rank)) {
    part.dropped.push_back(rank);
  }
  part.last_dropped = now;
}

}  // namespace ringd
