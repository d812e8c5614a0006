#include "client/core/fast_path/fast_path_memory.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ringd::client {

void FastPathMemory::AddSegment(const FastPathNotice& notice, const UniqueFd& fd) {
  MutexLock lock(mutex_);
  Note(fd.valid() ? MapSegment(notice, fd)
                  : absl::InternalError("ringd sent no descriptor with the fast path's memory"));
}

void FastPathMemory::AddConnection(const FastPathConnectionNotice& notice, UniqueFd fd) {
  MutexLock lock(mutex_);
  if (fd.valid()) {
    Note(KeepConnection(notice, std::move(fd)));
  } else {
    Note(absl::InternalError(absl::StrCat("ringd sent no descriptor with node ", notice.node,
                                          "'s connection of the fast path")));
  }
}

absl::Status FastPathMemory::MapSegment(const FastPathNotice& notice, const UniqueFd& fd) {
  if (segment_.data() != nullptr) {
    return absl::InternalError("ringd sent a second fast path segment");
  }
  absl::StatusOr<MemoryMapping> mapping = MemoryMapping::MapSealed(fd.get(), notice.segment_bytes);
  if (!mapping.ok()) return mapping.status();
  const absl::StatusOr<FastPathView> view = ViewFastPathSegment(mapping->data(), mapping->size());
  if (!view.ok()) return view.status();
  if (notice.member >= view->member_count()) {
    return absl::InternalError(absl::StrCat("ringd calls this rank member ", notice.member,
                                            " of a fast path segment for ", view->member_count()));
  }
  segment_ = *std::move(mapping);
  view_ = *view;
  member_ = notice.member;
  connections_.resize(view_.node_count());
  return absl::OkStatus();
}

absl::Status FastPathMemory::KeepConnection(const FastPathConnectionNotice& notice, UniqueFd fd) {
  if (!Expects(notice.node) || connections_[notice.node].valid()) {
    return absl::InternalError(absl::StrCat("ringd sent a connection of the fast path to node ",
                                            notice.node, ", which is not expected"));
  }
  connections_[notice.node] = std::move(fd);
  return absl::OkStatus();
}

bool FastPathMemory::Expects(std::uint32_t node) const noexcept {
  // Before the segment has come there are no places.
  if (node >= connections_.size()) return false;
  return ((view_.Neighbours() | NodeBit(view_.node_index())) & NodeBit(node)) != 0;
}

bool FastPathMemory::HasAll() const noexcept {
  if (connections_.empty()) return false;
  for (std::uint32_t node = 0; node < connections_.size(); ++node) {
    if (Expects(node) && !connections_[node].valid()) return false;
  }
  return true;
}

void FastPathMemory::GiveUp(const absl::Status& why) {
  MutexLock lock(mutex_);
  Note(why);
}

void FastPathMemory::Note(const absl::Status& status) {
  if (problem_.ok()) problem_ = status;
  changed_.NotifyAll();
}

absl::StatusOr<std::unique_ptr<FastPathExchange>> FastPathMemory::MakeExchange(
    std::uint32_t announced, Clock::time_point deadline) {
  MutexLock lock(mutex_);
  while (problem_.ok() && !HasAll()) {
    if (!changed_.WaitUntil(mutex_, deadline) && problem_.ok() && !HasAll()) {
      return absl::DeadlineExceededError(
          "ringd has not sent the memory and the connections of the fast path");
    }
  }
  if (!problem_.ok()) return problem_;
  const auto kept = static_cast<std::uint32_t>(std::count_if(
      connections_.begin(), connections_.end(), [](const UniqueFd& fd) { return fd.valid(); }));
  if (kept != announced) {
    return absl::InternalError(absl::StrCat(
        "ringd announced ", announced, " connections of the fast path where there are ", kept));
  }
  return FastPathExchange::Create(view_, member_, std::move(connections_));
}

}  // namespace ringd::client
