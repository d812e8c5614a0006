#include "client/core/lanes/node/job_memory.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace ringd::client {
namespace {

absl::Status NoDescriptor() {
  return absl::InternalError("ringd sent no descriptor with the job's memory");
}

}  // namespace

void JobMemory::AddSegment(const JobSegmentNotice& notice, const UniqueFd& fd) {
  MutexLock lock(mutex_);
  Note(fd.valid() ? MapSegment(notice, fd) : NoDescriptor());
}

void JobMemory::AddArena(const MemberArenaNotice& notice, const UniqueFd& fd) {
  MutexLock lock(mutex_);
  Note(fd.valid() ? MapArena(notice, fd) : NoDescriptor());
}

absl::Status JobMemory::MapSegment(const JobSegmentNotice& notice, const UniqueFd& fd) {
  if (missing_ != SIZE_MAX) return absl::InternalError("ringd sent a second job segment");
  if (notice.segment_bytes < sizeof(JobSegmentHeader) || notice.member >= notice.member_count) {
    return absl::InternalError("ringd's job segment makes no sense");
  }
  absl::StatusOr<MemoryMapping> mapping = MemoryMapping::MapSealed(fd.get(), notice.segment_bytes);
  if (!mapping.ok()) return mapping.status();
  const auto& header = *reinterpret_cast<const JobSegmentHeader*>(mapping->data());
  if (absl::Status status = CheckJobSegment(header, mapping->size()); !status.ok()) return status;
  if (header.member_count != notice.member_count) {
    return absl::InternalError("ringd's job segment has another number of members than it says");
  }
  segment_ = *std::move(mapping);
  view_ = JobSegmentView(segment_.data(), notice.member_count);
  self_ = notice.member;
  arenas_.resize(notice.member_count);
  arenas_[self_] = own_;
  missing_ = notice.member_count - 1;
  return absl::OkStatus();
}

absl::Status JobMemory::MapArena(const MemberArenaNotice& notice, const UniqueFd& fd) {
  if (missing_ == SIZE_MAX || notice.member >= arenas_.size() ||
      arenas_[notice.member].base != nullptr) {
    return absl::InternalError(
        absl::StrCat("ringd sent an arena of member ", notice.member, ", which is not expected"));
  }
  auto mapping = shared_arenas_->Map(fd, notice.arena_bytes);
  if (!mapping.ok()) return mapping.status();
  arenas_[notice.member] = {(*mapping)->data(), notice.arena_bytes};
  mappings_.push_back(*std::move(mapping));
  --missing_;
  return absl::OkStatus();
}

void JobMemory::GiveUp(const absl::Status& why) {
  MutexLock lock(mutex_);
  Note(why);
}

void JobMemory::Note(const absl::Status& status) {
  if (problem_.ok()) problem_ = status;
  changed_.NotifyAll();
}

absl::Status JobMemory::Await(Clock::time_point deadline) {
  MutexLock lock(mutex_);
  while (problem_.ok() && missing_ != 0) {
    if (!changed_.WaitUntil(mutex_, deadline) && problem_.ok() && missing_ != 0) {
      return absl::DeadlineExceededError(
          "ringd has not sent the memory that the job's ranks share");
    }
  }
  return problem_;
}

}  // namespace ringd::client
