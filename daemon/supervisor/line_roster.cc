#include "daemon/supervisor/line_roster.h"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/types/job_weight.h"

namespace ringd {

absl::StatusOr<std::unique_ptr<LineRoster>> LineRoster::Create() {
  absl::StatusOr<PublishedMemory> roster =
      CreatePublishedMemfd("ringd-line-roster", sizeof(LineRosterSegment));
  if (!roster.ok()) return roster.status();
  absl::StatusOr<UniqueFd> tags_fd = CreateSealedMemfd("ringd-line-tags", sizeof(LineTagsSegment));
  if (!tags_fd.ok()) return tags_fd.status();
  absl::StatusOr<MemoryMapping> tags =
      MemoryMapping::MapSealed(tags_fd->get(), sizeof(LineTagsSegment));
  if (!tags.ok()) return tags.status();
  return std::unique_ptr<LineRoster>(
      new LineRoster(*std::move(roster), *std::move(tags_fd), *std::move(tags)));
}

LineRoster::LineRoster(PublishedMemory published, UniqueFd tags_fd, MemoryMapping tags_memory)
    : roster_(std::move(published)),
      tags_fd_(std::move(tags_fd)),
      tags_(std::move(tags_memory)),
      free_(kMostEngines),
      users_(kMostEngines) {
  std::iota(free_.begin(), free_.end(), std::size_t{0});
  roster().magic = kLineRosterMagic;
  roster().version = kLineSharesVersion;
}

absl::Status LineRoster::CheckRoom(uid_t uid) noexcept {
  std::size_t of_user = 0;
  for (std::size_t slot = 0; slot < kMostEngines; ++slot) {
    if (roster().engines.set.Has(slot) && users_[slot] == uid) ++of_user;
  }
  if (of_user >= kMostEnginesOfUser) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "user ", uid, " has ", of_user, " jobs on this node, as many as a user may have at once"));
  }
  const std::size_t kept = uid == 0 ? 0 : kKeptForRoot + (of_user > 0 ? kKeptForOthers : 0);
  if (free_.size() > kept) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("this node has ", kMostEngines - free_.size(), " jobs, as many as it may have ",
                   "at once", kept == 0 ? "" : "; the other places are kept for root",
                   of_user > 0 && kept > 0 ? " and for users who have none" : ""));
}

absl::StatusOr<std::unique_ptr<LineRoster::Slot>> LineRoster::Add(std::uint32_t weight, uid_t uid) {
  if (absl::Status status = CheckRoom(uid); !status.ok()) return status;
  const std::size_t slot = free_.front();
  free_.erase(free_.begin());
  users_[slot] = uid;
  // Others may have written there since it was cleared.
  ClearWanting(slot);
  SetWeight(slot, weight);
  roster().engines.set.Add(slot);
  return std::make_unique<Slot>(*this, slot);
}

void LineRoster::SetWeight(std::size_t slot, std::uint32_t weight) noexcept {
  roster().weights[slot].store(std::clamp(weight, kMinJobWeight, kMaxJobWeight),
                               std::memory_order_relaxed);
}

void LineRoster::Remove(std::size_t slot) noexcept {
  // From now on nobody looks at its words.
  roster().engines.set.Remove(slot);
  ClearWanting(slot);
  free_.push_back(slot);  // there is room: it was there before
}

void LineRoster::ClearWanting(std::size_t slot) noexcept {
  for (LineTagsSegment::Wanting& line : tags().wanting) {
    if (line.set.Has(slot)) line.set.Remove(slot);
  }
}

}  // namespace ringd
