#include "daemon/lanes/node/local_group.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/schedule/protocol/ordered_name.h"
#include "proto/attach/handshake.h"
#include "proto/base/memfd.h"

namespace ringd {
absl::StatusOr<std::unique_ptr<LocalGroup>> LocalGroup::Create(
    const std::string& job_id, std::span<const std::int32_t> ranks,
    std::span<const std::shared_ptr<Session>> members, std::uint32_t communicator, bool by_order) {
  const auto count = static_cast<std::uint32_t>(members.size());
  if (count > kMaxLocalMembers) {
    return absl::ResourceExhaustedError(absl::StrCat("job '", job_id, "' has ", count,
                                                     " ranks on one node; at most ",
                                                     kMaxLocalMembers, " are possible"));
  }
  const std::uint64_t bytes = JobSegmentView::SegmentBytes(count);
  absl::StatusOr<UniqueFd> fd = CreateSealedMemfd("ringd-job", bytes);
  if (!fd.ok()) return fd.status();
  absl::StatusOr<MemoryMapping> mapping =
      MemoryMapping::Map(fd->get(), JobSegmentView::TensorsOffset(count));
  if (!mapping.ok()) return mapping.status();
  InitializeJobSegment(mapping->data(), ranks);
  std::vector<std::uint32_t> capacities;
  for (const auto& member : members) capacities.push_back(member->submission_capacity());
  for (std::uint32_t m = 0; m < count; ++m) {
    const JobSegmentNotice segment{bytes, count, m, communicator, 0};
    members[m]->SendMemory(NoticeKind::kJobSegment, std::as_bytes(std::span(&segment, 1)),
                           fd->get());
    for (std::uint32_t other = 0; other < count; ++other) {
      if (other == m) continue;
      const MemberArenaNotice arena{members[other]->arena_bytes(), other, communicator};
      members[m]->SendMemory(NoticeKind::kMemberArena, std::as_bytes(std::span(&arena, 1)),
                             members[other]->arena_fd());
    }
  }
  return std::unique_ptr<LocalGroup>(
      new LocalGroup(*std::move(mapping), *std::move(fd), std::move(capacities), by_order));
}

absl::StatusOr<std::uint32_t> LocalGroup::Hold(const std::string& name) {
  const std::optional<std::uint32_t> number = numbers_.Hold(name);
  if (number.has_value()) return *number;
  return absl::ResourceExhaustedError(absl::StrCat(
      "tensor '", name, "': more than ", kMaxLocalTensors,
      " different names at once in one job: give tensors that come again the same name, and give "
      "back those that do not come again (ringd_unregister)"));
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

MemberCounters LocalGroup::Counters(int member) const noexcept {
  const SharedMember& state = view_.Member(static_cast<std::size_t>(member));
  MemberCounters counters;
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
  return all ? "read directly"
             : "copied; a large tensor will make the ranks try to read each other's memory";
}

std::vector<LocalWait> LocalGroup::Waiting(Clock::time_point before, Clock::time_point now,
                                           bool& all) {
  all = true;
  std::vector<LocalWait> waiting;
  if (!AnyInFlight()) return waiting;
  for (LocalWaits::Wait& found : waits_.Waiting(before, now, tensor_count(), all)) {
    LocalWait& wait = waiting.emplace_back();
    wait.member = static_cast<int>(found.member);
    wait.tensor = by_order_
                      ? OrderedName(OrderedNumberOf(found.tensor.tensor, found.tensor.occurrence))
                      : numbers_.NameOf(found.tensor.tensor).value_or("?");
    wait.meta_id = found.verdict.meta_ids[found.member];
    const auto word = OrderedDescription::FromWord(wait.meta_id);
    if (by_order_ && word.has_value()) {
      wait.ordered_bytes = found.verdict.element_counts[found.member] * SizeOf(word->data_type);
    }
    wait.since = found.since;
    wait.arrived = found.verdict.arrived;
    wait.absent = std::move(found.verdict.absent);
  }
  return waiting;
}

std::optional<std::uint32_t> LocalGroup::PlaceOf(const std::string& tensor) const {
  if (by_order_) {
    const std::optional<std::uint64_t> number = OrderedNumber(tensor);
    if (!number.has_value()) return std::nullopt;
    return OrderedPlaceOf(*number);
  }
  return numbers_.Find(tensor);
}

bool LocalGroup::HasArrived(const std::string& tensor) {
  const std::optional<std::uint32_t> place = PlaceOf(tensor);
  const std::optional<LocalVerdict> verdict =
      place.has_value() ? waits_.OfOldest(*place) : std::nullopt;
  return verdict.has_value() && verdict->arrived;
}

std::vector<int> LocalGroup::MembersWithout(const std::string& tensor) {
  if (const std::optional<std::uint32_t> place = PlaceOf(tensor)) {
    if (std::optional<LocalVerdict> verdict = waits_.OfOldest(*place)) return verdict->absent;
  } else if (by_order_) {
    return {};
  }
  std::vector<int> all(view_.member_count());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

}  // namespace ringd
