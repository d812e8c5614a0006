#include "daemon/jobs/history/job_history.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "proto/base/text.h"

namespace ringd {
namespace {

void Shorten(std::string& text, std::size_t most) { text.resize(CutToLength(text, most).size()); }

}  // namespace

void JobHistory::Cut(v1::Job& job) {
  if (const int more = job.local_members_size() - JobHistory::kMembersKept; more > 0) {
    job.set_local_members_left_out(static_cast<std::uint32_t>(more));
    job.mutable_local_members()->DeleteSubrange(JobHistory::kMembersKept, more);
  }
  if (const int more = job.missing_ranks_size() - JobHistory::kMembersKept; more > 0) {
    job.set_missing_left_out(job.missing_left_out() + static_cast<std::uint32_t>(more));
    job.mutable_missing_ranks()->Truncate(JobHistory::kMembersKept);
  }
  for (v1::Member& member : *job.mutable_local_members()) {
    Shorten(*member.mutable_host(), JobHistory::kHostBytesKept);
    Shorten(*member.mutable_state(), JobHistory::kStateBytesKept);
  }
  Shorten(*job.mutable_job_id(), JobHistory::kWordsBytesKept);
  Shorten(*job.mutable_state(), JobHistory::kStateBytesKept);
  Shorten(*job.mutable_rendezvous(), JobHistory::kWordsBytesKept);
  Shorten(*job.mutable_waits_for(), JobHistory::kWordsBytesKept);
  Shorten(*job.mutable_failure(), JobHistory::kFailureBytesKept);
  job.clear_stall();
  job.DiscardUnknownFields();
  // A copy, since a message keeps the room that it has had.
  job = v1::Job(std::as_const(job));
}

void JobHistory::Add(v1::Job job) {
  if (jobs_per_user_ == 0) return;
  const std::uint64_t number = next_number_++;
  ++counts_[job.uid()];
  jobs_.emplace(number, Entry{number, std::move(job)});
  KeepLimits();
}

void JobHistory::SetLimit(std::size_t jobs_per_user) {
  jobs_per_user_ = jobs_per_user;
  KeepLimits();
}

const JobHistory::Entry* JobHistory::Before(std::uint64_t number) const {
  const auto next = jobs_.lower_bound(number);
  return next == jobs_.begin() ? nullptr : &std::prev(next)->second;
}

void JobHistory::KeepLimits() {
  const auto fewer = [](const auto& a, const auto& b) { return a.second < b.second; };
  while (!counts_.empty()) {
    const auto most = std::max_element(counts_.begin(), counts_.end(), fewer);
    if (most->second <= jobs_per_user_ && jobs_.size() <= kMostUsers * jobs_per_user_) return;
    RemoveOldestOf(most->first);
  }
}

void JobHistory::RemoveOldestOf(uid_t uid) {
  const auto oldest = std::find_if(jobs_.begin(), jobs_.end(), [uid](const auto& entry) {
    return entry.second.job.uid() == uid;
  });
  jobs_.erase(oldest);
  if (--counts_[uid] == 0) counts_.erase(uid);
}

}  // namespace ringd
