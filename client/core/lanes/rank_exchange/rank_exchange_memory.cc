#include "client/core/lanes/rank_exchange/rank_exchange_memory.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ringd::client {

void RankExchangeMemory::AddSegment(const RankExchangeNotice& notice, const UniqueFd& fd) {
  MutexLock lock(mutex_);
  Note(fd.valid()
           ? MapSegment(notice, fd)
           : absl::InternalError("ringd sent no descriptor with the memory of the rank exchange"));
}

void RankExchangeMemory::AddConnection(const RankExchangeConnectionNotice& notice, UniqueFd fd) {
  MutexLock lock(mutex_);
  if (fd.valid()) {
    Note(KeepConnection(notice, std::move(fd)));
  } else {
    Note(absl::InternalError(absl::StrCat("ringd sent no descriptor with node ", notice.node,
                                          "'s connection of the rank exchange")));
  }
}

absl::Status RankExchangeMemory::MapSegment(const RankExchangeNotice& notice, const UniqueFd& fd) {
  if (segment_.data() != nullptr) {
    return absl::InternalError("ringd sent a second segment of the rank exchange");
  }
  absl::StatusOr<MemoryMapping> mapping = MemoryMapping::MapSealed(fd.get(), notice.segment_bytes);
  if (!mapping.ok()) return mapping.status();
  const absl::StatusOr<RankExchangeView> view =
      ViewRankExchangeSegment(mapping->data(), mapping->size());
  if (!view.ok()) return view.status();
  if (notice.member >= view->member_count()) {
    return absl::InternalError(absl::StrCat("ringd calls this rank member ", notice.member,
                                            " of a segment of the rank exchange for ",
                                            view->member_count()));
  }
  segment_ = *std::move(mapping);
  view_ = *view;
  member_ = notice.member;
  connections_.resize(view_.node_count());
  return absl::OkStatus();
}

absl::Status RankExchangeMemory::KeepConnection(const RankExchangeConnectionNotice& notice,
                                                UniqueFd fd) {
  if (!Expects(notice.node) || connections_[notice.node].valid()) {
    return absl::InternalError(absl::StrCat("ringd sent a connection of the rank exchange to node ",
                                            notice.node, ", which is not expected"));
  }
  connections_[notice.node] = std::move(fd);
  return absl::OkStatus();
}

bool RankExchangeMemory::Expects(std::uint32_t node) const noexcept {
  // Before the segment has come there are no places.
  if (node >= connections_.size()) return false;
  return ((view_.Neighbours() | NodeBit(view_.node_index())) & NodeBit(node)) != 0;
}

bool RankExchangeMemory::HasAll() const noexcept {
  if (connections_.empty()) return false;
  for (std::uint32_t node = 0; node < connections_.size(); ++node) {
    if (Expects(node) && !connections_[node].valid()) return false;
  }
  return true;
}

void RankExchangeMemory::GiveUp(const absl::Status& why) {
  MutexLock lock(mutex_);
  Note(why);
}

void RankExchangeMemory::Note(const absl::Status& status) {
  if (problem_.ok()) problem_ = status;
  changed_.NotifyAll();
}

absl::StatusOr<std::unique_ptr<RankExchange>> RankExchangeMemory::MakeExchange(
    std::uint32_t announced, Clock::time_point deadline) {
  MutexLock lock(mutex_);
  while (problem_.ok() && !HasAll()) {
    if (!changed_.WaitUntil(mutex_, deadline) && problem_.ok() && !HasAll()) {
      return absl::DeadlineExceededError(
          "ringd has not sent the memory and the connections of the rank exchange");
    }
  }
  if (!problem_.ok()) return problem_;
  const auto kept = static_cast<std::uint32_t>(std::count_if(
      connections_.begin(), connections_.end(), [](const UniqueFd& fd) { return fd.valid(); }));
  if (kept != announced) {
    return absl::InternalError(absl::StrCat(
        "ringd announced ", announced, " connections of the rank exchange where there are ", kept));
  }
  return RankExchange::Create(view_, member_, std::move(connections_));
}

}  // namespace ringd::client
