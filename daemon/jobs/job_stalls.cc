// Waiting too long: this node asks the coordinator who is missing, answers the coordinator's
// inquiries, and passes the verdict to the ranks that wait.
#include <algorithm>
#include <cstdio>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/jobs/job.h"
#include "proto/base/proc_stat.h"
#include "proto/base/text.h"

namespace ringd {
namespace {

// Also where stalls are to be told sooner: joining takes a while.
constexpr std::chrono::seconds kJoinWarning{5};

constexpr std::size_t kTensorsReported = 16;
// The coordinator waits a second for the nodes' answers.
constexpr std::chrono::seconds kVerdictPatience{2};
// Of a node to which nothing has come from others, or whose GPUs have ended nothing, for so long,
// nothing is under way.
constexpr std::chrono::seconds kStandstill{1};
// Of what a stall is shown with.
constexpr std::size_t kWhyBytes = 4096;
constexpr int kTensorsShown = 16;

// Of those for whom a communicator waits.
constexpr std::size_t kRanksNamed = 16;

// What of a rank is missing.
enum class Lack : std::uint8_t { kSubmission, kPart, kReadiness };

// The verdict of a coordinator that gives none, `since` it was asked.
v1::StallVerdict BlameCoordinator(const MemberNode& coordinator, const v1::StallReport& asked,
                                  std::chrono::nanoseconds since) {
  v1::StallVerdict verdict;
  verdict.set_waiting_seconds(asked.waiting_seconds() +
                              std::chrono::duration<double>(since).count());
  char waited[32];
  std::snprintf(waited, sizeof(waited), "%.1f s", verdict.waiting_seconds());
  verdict.set_why(absl::StrCat("ringd on ", DescribeNode(coordinator), " does not answer"));
  verdict.set_text(absl::StrCat("waiting since ", waited, ": ", verdict.why()));
  for (const std::string& name : asked.tensors()) {
    v1::StalledTensor& stalled = *verdict.add_tensors();
    stalled.set_name(name);
    stalled.add_waits_for(coordinator.name);
  }
  return verdict;
}

// How long a tensor waits before the coordinator is asked; 0: it never is.
std::chrono::nanoseconds ReportAfter(std::chrono::nanoseconds warning,
                                     std::chrono::nanoseconds deadline) {
  if (deadline.count() <= 0) return warning;
  // The verdict must be here when the deadline passes, to say whom we waited for.
  const auto early = deadline * 6 / 10;
  return warning.count() <= 0 ? early : std::min(early, warning);
}

// Since when the first of the verdict's tensors waits here; 0: none does.
std::chrono::nanoseconds LongestWait(const CommunicatorPart& part, const v1::StallVerdict& verdict,
                                     Clock::time_point now) {
  std::chrono::nanoseconds longest{};
  for (const WaitingSubmission& entry : part.communicator->Waiting(Clock::time_point::max())) {
    for (const v1::StalledTensor& tensor : verdict.tensors()) {
      if (tensor.name() == entry.name) longest = std::max(longest, now - entry.since);
    }
  }
  return longest;
}

// Whether `verdict` is about all tensors that the former one was about.
bool NamesAllOf(const v1::StallVerdict& former, const v1::StallVerdict& verdict) {
  return std::ranges::all_of(former.tensors(), [&verdict](const v1::StalledTensor& tensor) {
    return std::ranges::any_of(verdict.tensors(), [&tensor](const v1::StalledTensor& named) {
      return named.name() == tensor.name();
    });
  });
}

}  // namespace

void Job::CheckStalls(CommunicatorPart& part, Clock::time_point now) {
  const auto deadline = options_.operation_timeout;
  const auto report_after = ReportAfter(options_.stall_warning, deadline);
  if (report_after.count() <= 0) return;
  const std::uint64_t progress = part.communicator->Progress();
  if (part.progress.value_or(progress) != progress) part.progressed_at = now;
  part.progress = progress;
  const std::optional<Clock::time_point> since =
      part.communicator->WaitingSince(now - report_after);
  if (!since.has_value()) {
    part.next_stall_report = report_after;
    return;
  }
  const Clock::time_point oldest = *since;
  // What waited longest until now has ended, and nobody has asked about this one; not about each of
  // many at once.
  if (oldest != part.stalled_since && now - part.stall_reported_at >= report_after) {
    part.next_stall_report = report_after;
  }
  part.stalled_since = oldest;
  if (part.asked.has_value() && now - part.stall_reported_at >= kVerdictPatience) {
    OnStallVerdict(
        part,
        BlameCoordinator(membership_->nodes.front(), *part.asked, now - part.stall_reported_at),
        now);
  }
  const bool too_late = deadline.count() > 0 && now - oldest >= deadline;
  // A first warning after the warning time, then when twice as much has passed, and so on.
  if (!too_late && (now - oldest < part.next_stall_report || link_ == nullptr)) return;
  // Only now: where much waits, this takes its time.
  auto waiting = part.communicator->Waiting(now - report_after);
  if (waiting.empty()) return;
  // Few are named; what has waited longest decides when is asked again.
  std::ranges::stable_sort(waiting, {}, &WaitingSubmission::since);
  if (too_late) {
    const WaitingSubmission& late = waiting.front();
    const bool known = part.verdict_at >= late.since &&
                       std::ranges::any_of(part.verdict.tensors(), [&late](const auto& tensor) {
                         return tensor.name() == late.name;
                       });
    Propose(absl::DeadlineExceededError(
        absl::StrCat(part.by_order ? late.name : absl::StrCat("tensor '", late.name, "'"),
                     part.number == 0 ? "" : absl::StrCat(" of communicator '", part.name, "'"),
                     " did not complete within the operation timeout of ",
                     std::chrono::duration<double>(deadline).count(), " s: ",
                     // Not its text, which says since when as it was when it was asked for.
                     known ? part.verdict.why()
                           : absl::StrCat("ringd on ", DescribeNode(membership_->nodes.front()),
                                          " could not say for whom it waits"))));
    return;
  }
  part.next_stall_report = 2 * (now - oldest);
  part.stall_reported_at = now;
  v1::NodeMessage message;
  message.set_communicator(part.number);
  std::set<std::string> named;
  for (const WaitingSubmission& entry : waiting) {
    if (named.size() >= kTensorsReported || !named.insert(entry.name).second) continue;
    message.mutable_stall_report()->add_tensors(entry.name);
  }
  message.mutable_stall_report()->set_waiting_seconds(
      std::chrono::duration<double>(now - oldest).count());
  part.asked = message.stall_report();
  link_->Send(std::move(message));
}

std::string Job::StateOf(const Member& member) const {
  if (member.left && member.lost_reason.empty()) return "left";
  if (member.left || member.session == nullptr) return "dead";
  return IsStopped(member.session->peer().pid) ? "stopped" : "running";
}

void Job::OnStallInquiry(CommunicatorPart& part, const v1::StallInquiry& inquiry) {
  if (link_ == nullptr || part.communicator == nullptr) return;
  v1::NodeMessage message;
  message.set_communicator(part.number);
  v1::StallAnswer& answer = *message.mutable_stall_answer();
  answer.set_inquiry(inquiry.inquiry());
  answer.set_moving(Clock::now() - part.progressed_at < kStandstill);
  std::map<std::pair<int, Lack>, v1::MissingRank> missing;  // by member
  std::vector<std::string> on_gpus;
  for (const std::string& tensor : inquiry.tensors()) {
    const std::vector<int> places = part.communicator->MembersWithout(tensor);
    const bool submitted = !places.empty() && part.communicator->AllHaveSubmitted(tensor);
    const Lack lack = submitted ? Lack::kPart : Lack::kSubmission;
    for (const int place : places) missing[{place, lack}].add_tensors(tensor);
    if (!places.empty() || !part.communicator->IsOnDevice(tensor)) continue;
    answer.set_on_gpus(true);
    on_gpus.push_back(tensor);
    for (const int place : part.communicator->MembersNotReady(tensor)) {
      missing[{place, Lack::kReadiness}].add_tensors(tensor);
    }
  }
  // In a one-node job each rank does its part of an operation, and a trainer may launch what its
  // GPU does: one that is stopped amid it has submitted it.
  const bool by_ranks = missing.empty() && part.communicator->CombinesLocally();
  for (std::size_t m = 0; m < part.positions.size(); ++m) {
    const int place = static_cast<int>(m);
    const bool launches = !on_gpus.empty() && part.communicator->LaunchesItself(place);
    if (!(by_ranks || launches) || StateOf(MemberOf(part, place)) != "stopped") continue;
    v1::MissingRank& entry = missing[{place, Lack::kPart}];
    if (by_ranks) {
      *entry.mutable_tensors() = inquiry.tensors();
    } else {
      entry.mutable_tensors()->Assign(on_gpus.begin(), on_gpus.end());
    }
  }
  for (auto& [of, entry] : missing) {
    const auto& [place, lack] = of;
    const Member& member = MemberOf(part, place);
    entry.set_submitted(lack != Lack::kSubmission);
    entry.set_not_ready(lack == Lack::kReadiness);
    entry.set_rank(member.rank.value());
    entry.set_pid(member.pid);
    entry.set_state(StateOf(member));
    *answer.add_missing() = std::move(entry);
  }
  link_->Send(std::move(message));
}

void Job::OnStallVerdict(CommunicatorPart& part, const v1::StallVerdict& verdict,
                         Clock::time_point now) {
  if (part.communicator == nullptr) return;
  part.asked.reset();
  // Of other tensors than those for which somebody is missing.
  if (verdict.under_way() && StallGoesOn(part) && !NamesAllOf(part.verdict, verdict)) return;
  part.verdict = verdict;
  part.verdict_at = now;
  part.awaited_here.clear();
  if (verdict.under_way()) {
    // It is asked about again, soon and as long as it takes: the data may come to stand.
    const Clock::time_point oldest = part.communicator->WaitingSince(now).value_or(now);
    part.next_stall_report =
        now - oldest + ReportAfter(options_.stall_warning, options_.operation_timeout) / 3;
    return;
  }
  for (std::size_t m = 0; m < part.positions.size(); ++m) {
    const int place = static_cast<int>(m);
    const int rank = MemberOf(part, place).rank.value();
    const bool awaited =
        std::any_of(verdict.ranks().begin(), verdict.ranks().end(),
                    [rank](const v1::AwaitedRank& entry) { return entry.rank() == rank; });
    if (awaited) part.awaited_here[place] = part.communicator->CountersOf(place);
  }
  // Another node may have asked: this one need not ask for the same again.
  part.next_stall_report = std::max(part.next_stall_report, 2 * LongestWait(part, verdict, now));
  // An early verdict, asked for because of the deadline, is kept but not yet worth a warning.
  const auto since =
      options_.stall_warning.count() > 0 ? now - options_.stall_warning : Clock::time_point::min();
  std::set<int> concerned;
  for (const WaitingSubmission& entry : part.communicator->Waiting(since)) {
    const bool named = std::any_of(verdict.tensors().begin(), verdict.tensors().end(),
                                   [&](const auto& tensor) { return tensor.name() == entry.name; });
    if (named) concerned.insert(entry.member);
  }
  for (const int place : concerned) {
    const Member& member = MemberOf(part, place);
    if (member.session == nullptr) continue;
    const bool is_awaited =
        std::any_of(verdict.ranks().begin(), verdict.ranks().end(),
                    [&member](const auto& entry) { return entry.rank() == member.rank.value(); });
    const std::string warning = absl::StrCat(
        "rank ", member.rank.value(), is_awaited ? " keeps others " : " is ", verdict.text());
    LogWarning(warning, Fields(member.rank));
    member.session->Notify(NoticeKind::kWarning, warning);
  }
}

// A verdict has no end that somebody would tell: it holds as long as what it names waits here, or a
// rank of this node for which others wait has done nothing since.
bool Job::StallGoesOn(const CommunicatorPart& part) const {
  if (state_ != State::kRunning || part.communicator == nullptr || part.verdict.tensors().empty() ||
      part.verdict.under_way()) {
    return false;
  }
  for (const auto& [place, then] : part.awaited_here) {
    if (MemberOf(part, place).session == nullptr) continue;
    const MemberCounters counters = part.communicator->CountersOf(place);
    if (counters.submitted == then.submitted && counters.ended == then.ended) return true;
  }
  const std::vector<WaitingSubmission> waiting = part.communicator->Waiting(part.verdict_at);
  return std::any_of(waiting.begin(), waiting.end(), [&part](const WaitingSubmission& entry) {
    return std::any_of(part.verdict.tensors().begin(), part.verdict.tensors().end(),
                       [&](const auto& tensor) { return tensor.name() == entry.name; });
  });
}

std::optional<v1::Stall> Job::DescribeStall(const CommunicatorPart& part,
                                            Clock::time_point now) const {
  if (!StallGoesOn(part)) return std::nullopt;
  v1::Stall stall;
  stall.set_seconds(part.verdict.waiting_seconds() +
                    std::chrono::duration<double>(now - part.verdict_at).count());
  stall.set_why(std::string(CutToLength(part.verdict.why(), kWhyBytes)));
  *stall.mutable_ranks() = part.verdict.ranks();
  stall.set_ranks_left_out(part.verdict.ranks_left_out());
  for (const v1::StalledTensor& tensor : part.verdict.tensors()) {
    if (stall.tensors_size() == kTensorsShown) break;
    stall.add_tensors(tensor.name());
  }
  return stall;
}

const v1::AwaitedRank* Job::FindAwaited(const v1::Stall& stall, Rank rank) {
  for (const v1::AwaitedRank& awaited : stall.ranks()) {
    if (awaited.rank() == rank.value()) return &awaited;
  }
  return nullptr;
}

void Job::WatchCoordinator(Clock::time_point now) {
  const bool waits = state_ == State::kJoining ? gathering_.has_value()
                                               : !asks_.empty() || agreement_.anyone_waits();
  if (!waits || options_.coordinates_here || link_ == nullptr) return;
  if (coordinator_watch_.IsDue(now)) SendClockPing();
}

std::string Job::WhatJoinsWaitFor(Clock::time_point now) const {
  v1::Job missing;
  DescribeMissing(&missing, now);
  if (!missing.waits_for().empty()) return missing.waits_for();
  std::string awaited = absl::StrCat(missing.missing_ranks_size() == 1 ? "rank " : "ranks ",
                                     absl::StrJoin(missing.missing_ranks(), ", "));
  if (missing.missing_left_out() > 0) {
    absl::StrAppend(&awaited, " and ", missing.missing_left_out(), " more");
  }
  return absl::StrCat(awaited, " to join");
}

void Job::TellWhatJoinsWaitFor(Clock::time_point now) {
  if (state_ != State::kJoining || options_.stall_warning.count() == 0) return;
  const auto period = std::max<std::chrono::nanoseconds>(options_.stall_warning, kJoinWarning);
  if (now - std::max(created_, joins_told_at_) < period) return;
  joins_told_at_ = now;
  const std::string awaited = WhatJoinsWaitFor(now);
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now - created_).count();
  const std::string text =
      absl::StrCat("job '", options_.job_id, "' waits for ", awaited, ", since ", seconds, " s");
  LogInfo(text, Fields());
  for (const auto& [local_rank, member] : members_) {
    if (member.session != nullptr && member.done) {
      member.session->Notify(NoticeKind::kWarning, text);
    }
  }
}

void Job::TellWhatAsksWaitFor(Clock::time_point now) {
  for (Ask& ask : asks_) {
    if (!ask.since.has_value()) ask.since = now;
    const auto waited = now - *ask.since;
    const auto due = ask.told_after.count() > 0 ? 2 * ask.told_after : options_.stall_warning;
    if (options_.stall_warning.count() == 0 || waited < due) continue;
    ask.told_after = waited;
    // Those of other nodes may have asked as well: the coordinator alone knows.
    std::vector<std::string> others;
    std::size_t more = 0;
    for (const int rank : ask.ranks) {
      const bool has_asked = std::ranges::any_of(asks_, [&](const Ask& entry) {
        return entry.rank == rank && entry.name == ask.name && entry.ranks == ask.ranks;
      });
      if (has_asked) continue;
      if (others.size() < kRanksNamed) {
        others.push_back(absl::StrCat(rank));
      } else {
        ++more;
      }
    }
    std::string text =
        absl::StrCat("rank ", ask.rank, " is waiting since ",
                     std::chrono::duration_cast<std::chrono::seconds>(waited).count(),
                     " s for communicator '", ask.name, "': ");
    if (others.empty() || coordinator_watch_.SilentFor(now)) {
      absl::StrAppend(&text, "ringd on ", DescribeNode(membership_->nodes.front()),
                      " does not answer");
    } else {
      absl::StrAppend(
          &text, others.size() == 1 ? "rank " : "one of ranks ", absl::StrJoin(others, ", "),
          more > 0 ? absl::StrCat(" and ", more, " more") : "", " has not asked for it");
    }
    LogWarning(text, Fields(Rank(ask.rank)));
    for (const auto& [local_rank, member] : members_) {
      if (member.rank.value() != ask.rank || member.session == nullptr) continue;
      member.session->Notify(NoticeKind::kWarning, text);
    }
  }
}

}  // namespace ringd
