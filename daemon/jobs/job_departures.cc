// How ranks go: in order, by death, or by ringd's decision; and what the others are told.
#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/jobs/job.h"
#include "proto/base/text.h"
#include "proto/types/failure_words.h"

namespace ringd {
namespace {

// A dead trainer's launcher usually knows within milliseconds how it died; the others can wait so
// long for a better word.
constexpr auto kExitReportGrace = std::chrono::milliseconds(150);
// Where only the trainer's parent can make it visible, by reaping (torchrun looks every 100 ms);
// and a trainer whose connection has ended is given so long to end itself. Less than a second:
// other nodes and ranks wait so long before they tell what they have seen of the death themselves,
// and the ranks are to know within a second.
constexpr auto kExitGrace = std::chrono::milliseconds(800);
// After a rank has left, what it took part in is still on its way to the others for a moment.
constexpr auto kLeaveGrace = std::chrono::seconds(1);
constexpr auto kRunningGrace = std::chrono::seconds(10);

}  // namespace

bool Job::Leave(const Session& session, Clock::time_point now) {
  Member* member = Find(session);
  if (member == nullptr || member->left) return member != nullptr;
  member->left = true;
  anyone_left_ = true;
  LogInfo(absl::StrCat("pid ", member->pid, " leaves"), Fields(member->rank));
  if (state_ == State::kJoining) {
    Fail(
        absl::AbortedError(absl::StrCat(DescribeRank(member->rank, member->pid, options_.node_name),
                                        " left job '", options_.job_id, "' ", DescribeStart())));
    return true;
  }
  const int position = PositionOf(*member);
  bool untouched = true;
  for (CommunicatorPart* const part : Parts()) {
    const int place = part->MemberAt(position);
    if (place >= 0) untouched = part->communicator->Leave(place) && untouched;
  }
  AnswerAsks([rank = member->rank.value()](const Ask& ask) { return ask.rank == rank; },
             absl::CancelledError("this rank left its job"), {});
  agreement_.OnLeft(member->rank.value());
  if (!untouched) {
    // Whatever it left behind may be overwritten from now on: no node may take it for a sum's part.
    // It can't wait for what the coordinator says.
    Fail(absl::AbortedError(
        absl::StrCat(DescribeRank(member->rank, member->pid, options_.node_name), " left job '",
                     options_.job_id, "' (shutdown) ", DescribeInFlight())));
    Settle();
  }
  left_ranks_.push_back(member->rank.value());
  last_left_ = now;
  leave_is_long_ago_ = false;
  if (link_ != nullptr && state_ == State::kRunning) {
    v1::NodeMessage message;
    message.mutable_ranks_left()->add_ranks(member->rank.value());
    link_->Send(std::move(message));
  }
  return true;
}

void Job::LeaveFailed(const Session& session, absl::string_view failure, Clock::time_point now) {
  Member* const member = Find(session);
  if (member == nullptr || member->left) return;
  member->left = true;
  anyone_left_ = true;
  const std::string words = CleanLine(CutToLength(failure, kMostFailureBytes));
  LogInfo(absl::StrCat("pid ", member->pid, " gives up: ", words), Fields(member->rank));
  member->lost_reason = absl::StrCat(words, ",");
  // Mostly since the job has failed: then its ranks know why.
  if (state_ == State::kFailed) return;
  member->lost_since = now;
  TellDeaths(now);
}

void Job::OnRanksLeft(const v1::RanksLeft& message, Clock::time_point now) {
  anyone_left_ = true;
  for (const int rank : message.ranks()) {
    if (static_cast<int>(left_ranks_.size()) >= options_.size) break;
    left_ranks_.push_back(rank);
    agreement_.OnLeft(rank);
  }
  last_left_ = now;
}

bool Job::AllHaveLeft() const {
  return std::ranges::all_of(members_, [](const auto& entry) {
    return entry.second.left && entry.second.lost_reason.empty();
  });
}

void Job::OnSessionLost(const Session& session, const std::string& reason, bool for_cause,
                        Clock::time_point now) {
  Member* member = Find(session);
  if (member == nullptr) return;
  anyone_left_ = true;
  const bool in_order = member->left || state_ == State::kFailed;
  if (!in_order) {
    member->lost_reason = reason;
    member->lost_since = now;
  }
  // Also of one that has left, for who waits for it all the same.
  if (!for_cause && (!in_order || (member->left && member->lost_reason.empty()))) {
    member->inquiry.emplace(session.peer().pid, session.pidfd());
  }
  if (member->done) std::exchange(member->done, nullptr)(absl::AbortedError(reason), {});
  member->session = nullptr;
  TellDeaths(now);
}

void Job::GiveWay(Rank rank, Clock::time_point now) {
  const bool had_it = std::ranges::any_of(
      members_, [rank](const auto& entry) { return entry.second.rank == rank; });
  if (state_ == State::kJoining && had_it) TellDeaths(now, true);
}

bool Job::OnExitReport(Rank rank, int pid, const ProcessExit& exit) {
  for (auto& [local_rank, member] : members_) {
    if (member.rank != rank) continue;
    // A good end is told late, and may be that of who had this number before.
    if (exit.ok() && member.session != nullptr) return true;
    member.exit = exit;
    TellDeaths(Clock::now());
    return true;
  }
  if (state_ != State::kJoining || rank.value() < 0 || rank.value() >= options_.size) return false;
  // The others would wait for it until the start timeout.
  Propose(absl::AbortedError(absl::StrCat(DescribeRank(rank, pid, options_.node_name), ", ",
                                          DescribeExit(exit), " before it had joined")));
  return true;
}

Job::Member* Job::FirstLost() {
  Member* first = nullptr;
  for (auto& [local_rank, member] : members_) {
    if (!member.lost_since.has_value()) continue;
    if (first == nullptr || *member.lost_since < *first->lost_since) first = &member;
  }
  return first;
}

void Job::LookAtLeavers() {
  for (auto& [local_rank, member] : members_) {
    if (!member.left || !member.inquiry.has_value() || member.lost_since.has_value()) continue;
    const ExitInquiry::State state = member.inquiry->Look();
    if (state == ExitInquiry::State::kKnown && !member.exit.has_value()) {
      member.exit = member.inquiry->exit();
    }
    if (state == ExitInquiry::State::kKnown || state == ExitInquiry::State::kHidden) {
      member.inquiry.reset();
    }
  }
}

std::string Job::DescribeLeaversEnd(const std::vector<int>& ranks) const {
  std::string text;
  for (const auto& [local_rank, member] : members_) {
    if (!member.exit.has_value() || member.exit->ok() ||
        std::ranges::find(ranks, member.rank.value()) == ranks.end())
      continue;
    absl::StrAppend(&text, "; ", NameOf(member), ", then ", DescribeExit(*member.exit));
  }
  return text;
}

// In the order in which they died: a launcher that has found a dead rank ends the others, and how
// those ended may be visible earlier.
void Job::TellDeaths(Clock::time_point now, bool at_once) {
  while (Member* const member = FirstLost()) {
    std::string end = member->lost_reason;
    if (!member->exit.has_value() && member->inquiry.has_value()) {
      const ExitInquiry::State state = member->inquiry->Look();
      const auto grace = state == ExitInquiry::State::kHidden ? kExitReportGrace : kExitGrace;
      if (state == ExitInquiry::State::kKnown) {
        member->exit = member->inquiry->exit();
      } else if (!at_once && now - *member->lost_since < grace) {
        if (state == ExitInquiry::State::kEnded) ForetellDeath(*member);
        return;
      } else if (state != ExitInquiry::State::kRuns) {
        end = "ended; how is not visible to ringd,";
      }
    }
    // Who has said himself why he goes is believed, however his process then ends.
    const bool is_known = member->exit.has_value() && !member->left;
    AnnounceDeath(*member, is_known ? DescribeExit(*member->exit) : end);
  }
}

std::string Job::NameOf(const Member& member) const {
  std::string text = DescribeRank(member.rank, member.pid, options_.node_name);
  if (!member.program.empty()) absl::StrAppend(&text, " (", member.program, ")");
  return text;
}

// The launcher, which alone can make visible how it ended, may end the other ranks as soon as it
// has noticed: for them this is the last word.
void Job::ForetellDeath(Member& member) {
  if (std::exchange(member.foretold, true)) return;
  const std::string text = absl::StrCat(
      NameOf(member), ", has ended; how it ended is told when its launcher has noticed");
  for (const auto& [local_rank, other] : members_) {
    if (other.session == nullptr || other.left) continue;
    other.session->Notify(NoticeKind::kWarning, text);
  }
}

void Job::AnnounceDeath(Member& member, const std::string& end) {
  member.lost_since.reset();
  std::string text = NameOf(member);
  absl::StrAppend(&text, ", ", end);
  if (world_.communicator != nullptr) {
    // What this rank or another of its node had submitted, and what therefore never completes.
    absl::StrAppend(&text, " ", DescribeInFlight());
  } else if (state_ == State::kJoining) {
    absl::StrAppend(&text, " ", DescribeStart());
  } else {
    absl::StrAppend(&text, " about when job '", options_.job_id, "' failed");
  }
  member.inquiry.reset();
  LogWarning(text, Fields(member.rank));
  Propose(absl::AbortedError(text));
}

std::string Job::DescribeStart() const {
  // This node hears a moment later than others that the job runs. It can be sure that it does not
  // only while one of its own ranks is missing.
  if (static_cast<int>(members_.size()) < options_.local_size) {
    return "before all ranks had joined";
  }
  return absl::StrCat("while job '", options_.job_id, "' was starting");
}

void Job::OnLinkLost(const absl::Status& why) {
  // The communicator may still send on it, to nobody.
  lost_link_ = std::move(link_);
  greeted_ = false;
  if (state_ == State::kFailed) return;
  // A supervisor's word on its engine.
  if (absl::IsDataLoss(why)) return FailLocally(absl::AbortedError(why.message()));
  const bool all_left = std::all_of(members_.begin(), members_.end(),
                                    [](const auto& entry) { return entry.second.left; });
  if (all_left && !agreed_.pending()) return;
  // gRPC's words are for whoever looks into the network; other errors are a ringd's own.
  const bool lost = absl::IsUnavailable(why) || why.ok();
  if (lost) LogInfo(absl::StrCat("the coordinator's stream ended: ", why.message()), Fields());
  if (world_.communicator != nullptr) {
    const MemberNode& node = membership_->nodes.front();
    FailLocally(absl::AbortedError(
        lost ? absl::StrCat(DescribeLostNode(node), " ", DescribeInFlight())
             : absl::StrCat("ringd on ", DescribeNode(node), " has gone: ", why.message())));
  } else if (lost) {
    FailLocally(absl::UnavailableError(
        absl::StrCat("the ringd at ", options_.rendezvous, ", which gathers job '", options_.job_id,
                     "', ended or lost its connection ", DescribeStart())));
  } else if (absl::IsDeadlineExceeded(why)) {
    FailLocally(absl::DeadlineExceededError(
        absl::StrCat("job '", options_.job_id, "' of uid ", options_.uid,
                     " could not start in time: ", why.message(), "; on ", options_.node_name, " ",
                     members_.size(), " of ", options_.local_size, " local ranks joined")));
  } else {
    FailLocally(absl::Status(
        why.code(), absl::StrCat("job '", options_.job_id, "' can't be joined: ", why.message())));
  }
}

bool Job::AnswersForLeavers() const noexcept {
  return anyone_left_ && !leave_is_long_ago_ &&
         std::ranges::any_of(Parts(), [](const CommunicatorPart* part) {
           return part->communicator->HasWithdrawn();
         });
}

bool Job::NeedsTicks() const noexcept {
  if (state_ == State::kJoining || rank_exchange_setup_ != nullptr || agreed_.pending() ||
      AnswersForLeavers() || agreement_.anyone_waits() || !trace_gatherings_.empty() ||
      !trace_inquiries_.empty() || !asks_.empty()) {
    return true;
  }
  if (world_.communicator != nullptr && !world_.communicator->Idle()) return true;
  if (!active_.empty() || parts_need_ticks_) return true;
  return std::any_of(members_.begin(), members_.end(),
                     [](const auto& entry) { return entry.second.lost_since.has_value(); });
}

std::optional<Clock::time_point> Job::NextTick(Clock::time_point now) const {
  if (world_.communicator == nullptr || state_ == State::kFailed || agreed_.pending()) {
    return std::nullopt;
  }
  std::optional<Clock::time_point> next = world_.communicator->NextTick(now);
  for (const CommunicatorPart* const part : active_) {
    const auto tick = part->communicator->NextTick(now);
    if (tick.has_value()) next = std::min(next.value_or(*tick), *tick);
  }
  return next;
}

void Job::Tick(Clock::time_point now) {
  // Nothing will come of it any more: give the memory of those who have gone back.
  if (state_ == State::kFailed) {
    for (CommunicatorPart* const part : Parts()) {
      if (part->communicator->Quiet()) DropCommunicator(*part, now);
    }
  }
  if (now - last_left_ >= kLeaveGrace) leave_is_long_ago_ = true;
  LookAtLeavers();
  TellDeaths(now);
  WatchCoordinator(now);
  TellWhatJoinsWaitFor(now);
  if (state_ == State::kJoining && now >= start_deadline_) {
    const absl::Status late = absl::DeadlineExceededError(
        absl::StrCat("job '", options_.job_id, "' could not start within ",
                     std::chrono::duration<double>(options_.start_timeout).count(),
                     " s: it waits for ", WhatJoinsWaitFor(now), "; on ", options_.node_name, " ",
                     members_.size(), " of ", options_.local_size, " local ranks joined"));
    // The coordinator, if it has been heard of, can say more.
    const bool is_heard =
        options_.coordinates_here || (gathering_.has_value() && !coordinator_watch_.SilentFor(now));
    if (link_ == nullptr || !is_heard) {
      Fail(late);
    } else if (agreed_.Propose(late)) {
      TellCoordinator(late);
    }
  }
  if (const auto unanswered = agreed_.Unanswered(now)) FailLocally(*unanswered);
  if (state_ != State::kRunning || agreed_.pending()) return;
  trace_gatherings_.EndLate(now);
  TellWhoseDevicesAreAwaited(now);
  TellWhatAsksWaitFor(now);
  if (world_.communicator != nullptr) Tick(world_, now);
  if (state_ != State::kRunning || agreed_.pending()) return;
  TickParts(now);
}

void Job::Tick(CommunicatorPart& part, Clock::time_point now) {
  part.communicator->Look(now);
  if (part.number == 0) LookAtRankExchange(now);
  if (state_ != State::kRunning || agreed_.pending() || part.communicator->Idle()) return;
  if (const std::string gone = DescribeGone(part, now); !gone.empty()) {
    Propose(absl::AbortedError(gone));
    return;
  }
  CheckStalls(part, now);
}

std::string Job::DescribeGone(const CommunicatorPart& part, Clock::time_point now) const {
  // Whoever has left the job may be none of its ranks.
  std::vector<int> left;
  if (now - last_left_ >= kLeaveGrace) {
    std::ranges::copy_if(left_ranks_, std::back_inserter(left), [&part](int rank) {
      return part.number == 0 || std::ranges::find(part.ranks, rank) != part.ranks.end();
    });
  }
  const bool dropped = !part.dropped.empty() && now - part.last_dropped >= kLeaveGrace;
  if (left.empty() && !dropped) return "";
  if (!part.communicator->WaitingSince(now - kLeaveGrace).has_value()) return "";
  const std::vector<int>& gone = left.empty() ? part.dropped : left;
  const Clock::time_point gone_at = left.empty() ? part.last_dropped : last_left_;
  const std::string who =
      absl::StrCat(gone.size() == 1 ? "rank " : "ranks ", absl::StrJoin(gone, ", "));
  for (const WaitingSubmission& entry : part.communicator->Waiting(now - kLeaveGrace)) {
    // Who has gone has done its part; what it sent may be under way.
    const bool runs = entry.state == TensorState::kRunning;
    if (runs && now - std::max(entry.since, gone_at) < kRunningGrace) continue;
    const std::string left_job = absl::StrCat(who, " left job '", options_.job_id, "' (shutdown",
                                              DescribeLeaversEnd(gone), "), but ");
    if (part.number == 0) {
      return absl::StrCat(left_job, "tensor '", entry.name, "' waits for all ranks");
    }
    if (!left.empty()) {
      return absl::StrCat(left_job, "on communicator '", part.name, "' tensor '", entry.name,
                          "' waits for all its ranks");
    }
    return absl::StrCat(who, gone.size() == 1 ? " has" : " have", " destroyed communicator '",
                        part.name, "', but there tensor '", entry.name,
                        "' waits for all its ranks");
  }
  return "";
}

}  // namespace ringd
