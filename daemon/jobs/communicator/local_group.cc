#include "daemon/jobs/communicator/local_group.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "proto/attach/handshake.h"
#include "proto/base/memfd.h"

namespace ringd {
namespace {

// While tensors are combined all is well, mostly; looking takes cache lines from those who do it.
constexpr auto kLookInterval = std::chrono::seconds(1);

}  // namespace

absl::StatusOr<std::unique_ptr<LocalGroup>> LocalGroup::Create(
    const std::string& job_id, std::span<const std::int32_t> ranks,
    std::span<const std::shared_ptr<Session>> members) {
  const auto count = static_cast<std::uint32_t>(members.size());
  if (count > kMaxLocalMembers) {
    return absl::ResourceExhaustedError(absl::StrCat("job '", job_id, "' has ", count,
                                                     " ranks on one node; at most ",
                                                     kMaxLocalMembers, " are possible"));
  }
  const std::uint64_t bytes = JobSegmentView::SegmentBytes(count);
  absl::StatusOr<UniqueFd> fd = CreateSealedMemfd("ringd-job", bytes);
  if (!fd.ok()) return fd.status();
  absl::StatusOr<MemoryMapping> mapping = MemoryMapping::Map(fd->get(), bytes);
  if (!mapping.ok()) return mapping.status();
  InitializeJobSegment(mapping->data(), ranks);
  for (std::uint32_t m = 0; m < count; ++m) {
    const JobSegmentNotice segment{bytes, count, m};
    members[m]->SendMemory(NoticeKind::kJobSegment, std::as_bytes(std::span(&segment, 1)),
                           fd->get());
    for (std::uint32_t other = 0; other < count; ++other) {
      if (other == m) continue;
      const MemberArenaNotice arena{members[other]->arena_bytes(), other, 0};
      members[m]->SendMemory(NoticeKind::kMemberArena, std::as_bytes(std::span(&arena, 1)),
                             members[other]->arena_fd());
    }
  }
  return std::unique_ptr<LocalGroup>(new LocalGroup(*std::move(mapping), count));
}

absl::StatusOr<std::uint32_t> LocalGroup::Number(const std::string& name) {
  const auto found = numbers_.find(name);
  if (found != numbers_.end()) return found->second;
  if (names_.size() == kMaxLocalTensors) {
    return absl::ResourceExhaustedError(
        absl::StrCat("tensor '", name, "': more than ", kMaxLocalTensors,
                     " different names in one job: give tensors that come again the same name"));
  }
  const auto number = static_cast<std::uint32_t>(names_.size());
  names_.push_back(name);
  numbers_.emplace(name, number);
  return number;
}

std::optional<std::string> LocalGroup::NameOf(std::uint32_t tensor) const {
  if (tensor >= names_.size()) return std::nullopt;
  return names_[tensor];
}

std::uint64_t LocalGroup::Posted(std::uint32_t tensor, std::uint32_t member) const noexcept {
  std::uint64_t posted = 0;
  for (std::uint64_t i = 0; i < kOccurrencesInFlight; ++i) {
    posted =
        std::max(posted, view_.Slot(tensor, member, i).occurrence.load(std::memory_order_acquire));
  }
  return posted;
}

std::optional<LocalGroup::Head> LocalGroup::HeadOf(std::uint32_t tensor,
                                                   std::uint32_t member) const noexcept {
  const std::uint64_t ended = view_.Ended(tensor, member).load(std::memory_order_acquire);
  const std::uint64_t posted = Posted(tensor, member);
  if (posted <= ended) return std::nullopt;
  return Head{ended, view_.Slot(tensor, member, ended).meta_id, posted};
}

std::vector<int> LocalGroup::Absent(std::uint32_t tensor, std::uint64_t occurrence,
                                    bool& arrived) const {
  std::vector<int> absent;
  for (std::uint32_t m = 0; m < view_.member_count(); ++m) {
    if (Posted(tensor, m) <= occurrence) absent.push_back(static_cast<int>(m));
  }
  arrived = absent.empty();
  if (!arrived) return absent;
  // A member may have been stopped while it reduced a part.
  if (view_.Tensor(tensor).finished.load(std::memory_order_acquire) > occurrence) return absent;
  for (std::uint32_t m = 0; m < view_.member_count(); ++m) {
    if (view_.Member(m).reducing.load(std::memory_order_relaxed) == tensor + 1) {
      absent.push_back(static_cast<int>(m));
    }
  }
  return absent;
}

std::uint64_t LocalGroup::Progress() const noexcept {
  std::uint64_t sum = 0;
  for (std::uint32_t m = 0; m < view_.member_count(); ++m) {
    const SharedMember& member = view_.Member(m);
    sum += member.posted.load(std::memory_order_relaxed) +
           member.ended.load(std::memory_order_relaxed);
  }
  return sum;
}

void LocalGroup::Look(Clock::time_point now) {
  const std::uint64_t progress = Progress();
  const bool moved = std::exchange(last_progress_, progress) != progress;
  if (moved && now - last_look_ < kLookInterval) return;
  last_look_ = now;
  for (std::uint32_t t = 0; t < names_.size(); ++t) {
    for (std::uint32_t m = 0; m < view_.member_count(); ++m) {
      const std::optional<Head> head = HeadOf(t, m);
      const auto found = seen_.find({t, m});
      if (!head.has_value()) {
        if (found != seen_.end()) seen_.erase(found);
      } else if (found == seen_.end() || found->second.occurrence != head->occurrence) {
        seen_[{t, m}] = {head->occurrence, now};
      }
    }
  }
}

bool LocalGroup::AnyInFlight() const noexcept {
  for (std::uint32_t m = 0; m < view_.member_count(); ++m) {
    const SharedMember& member = view_.Member(m);
    if (member.posted.load(std::memory_order_relaxed) !=
        member.ended.load(std::memory_order_relaxed)) {
      return true;
    }
  }
  return false;
}

LocalMemberCounters LocalGroup::Counters(int member) const noexcept {
  const SharedMember& state = view_.Member(static_cast<std::size_t>(member));
  LocalMemberCounters counters;
  counters.ended = state.ended.load(std::memory_order_relaxed);
  counters.submitted = std::max(counters.ended, state.posted.load(std::memory_order_relaxed));
  counters.failed = std::min(counters.ended, state.failed.load(std::memory_order_relaxed));
  counters.bytes = state.bytes.load(std::memory_order_relaxed);
  return counters;
}

std::string LocalGroup::OrdinaryMemory() const {
  bool all = true;
  for (std::uint32_t m = 0; m < view_.member_count(); ++m) {
    const SharedMember& member = view_.Member(m);
    const Reach reach = Reach::FromWord(member.reach.load(std::memory_order_acquire));
    if (reach.state == Reach::State::kOff) {
      return absl::StrCat("copied: rank ", member.rank, " does not read directly (its setting)");
    }
    if (reach.state == Reach::State::kCannot) {
      const std::string other = reach.member < view_.member_count()
                                    ? absl::StrCat("rank ", view_.Member(reach.member).rank)
                                    : "another rank";
      return absl::StrCat("copied: rank ", member.rank, " can't read ", other, " (",
                          reach.error == 0 ? "it has another pid here" : std::strerror(reach.error),
                          ")");
    }
    all = all && reach.state == Reach::State::kReadsAll;
  }
  return all ? "read directly" : "copied: not all ranks have tried to read the others so far";
}

std::vector<LocalWait> LocalGroup::Waiting(Clock::time_point before, Clock::time_point now) const {
  std::vector<LocalWait> waiting;
  if (!AnyInFlight()) return waiting;
  for (std::uint32_t t = 0; t < names_.size(); ++t) {
    for (std::uint32_t m = 0; m < view_.member_count(); ++m) {
      const std::optional<Head> head = HeadOf(t, m);
      if (!head.has_value()) continue;
      const auto found = seen_.find({t, m});
      const bool known = found != seen_.end() && found->second.occurrence == head->occurrence;
      LocalWait wait;
      wait.since = known ? found->second.since : now;
      if (wait.since > before) continue;
      wait.member = static_cast<int>(m);
      wait.tensor = names_[t];
      wait.meta_id = head->meta_id;
      wait.absent = Absent(t, head->occurrence, wait.arrived);
      // All have submitted it and nobody is at it: whoever waits for it next will find it, at once.
      if (wait.absent.empty()) continue;
      waiting.push_back(std::move(wait));
    }
  }
  return waiting;
}

std::vector<int> LocalGroup::MembersWithout(const std::string& tensor) const {
  const auto found = numbers_.find(tensor);
  std::vector<int> all;
  std::optional<std::uint64_t> oldest;
  for (std::uint32_t m = 0; m < view_.member_count(); ++m) {
    all.push_back(static_cast<int>(m));
    if (found == numbers_.end()) continue;
    const std::optional<Head> head = HeadOf(found->second, m);
    if (!head.has_value()) continue;
    oldest = std::min(oldest.value_or(head->occurrence), head->occurrence);
  }
  if (!oldest.has_value()) return all;
  bool arrived = false;
  return Absent(found->second, *oldest, arrived);
}

}  // namespace ringd
