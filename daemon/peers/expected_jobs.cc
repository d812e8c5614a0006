#include "daemon/peers/expected_jobs.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ringd {

ExpectationId ExpectedJobs::Add(ExpectedJob job) {
  const Tag tag = JobTag(job.job_id);
  MutexLock lock(mutex_);
  const ExpectationId id(++last_id_);
  entries_[tag].emplace(id.value(), Entry{id, std::move(job), 0});
  tags_.emplace(id.value(), tag);
  return id;
}

void ExpectedJobs::Remove(ExpectationId id) {
  MutexLock lock(mutex_);
  const auto tag = tags_.find(id.value());
  if (tag == tags_.end()) return;
  const auto same = entries_.find(tag->second);
  same->second.erase(id.value());
  if (same->second.empty()) entries_.erase(same);
  tags_.erase(tag);
}

void ExpectedJobs::SetDraining(bool draining) {
  MutexLock lock(mutex_);
  draining_ = draining;
}

void ExpectedJobs::Release(uid_t user) {
  MutexLock lock(mutex_);
  const auto found = connections_.find(user);
  if (found != connections_.end() && --found->second == 0) connections_.erase(found);
}

std::vector<const ExpectedJobs::Entry*> ExpectedJobs::Candidates(
    const ControlSubject& subject) const {
  std::vector<const Entry*> candidates;
  const auto same = entries_.find(subject.job);
  if (same == entries_.end()) return candidates;
  for (const auto& [id, entry] : same->second) candidates.push_back(&entry);
  std::stable_partition(candidates.begin(), candidates.end(),
                        [&](const Entry* entry) { return entry->job.uid == subject.uid; });
  return candidates;
}

void ExpectedJobs::Consider(const DoorHello& hello, DoorConsideration& answer) {
  const ControlSubject subject = ToControlSubject(hello.subject);
  MutexLock lock(mutex_);
  bool is_own_user = false;
  std::map<uid_t, std::size_t> of_user;
  bool is_full = false;  // a user whose job it may mean has all connections that he may have
  for (const Entry* entry : Candidates(subject)) {
    if (entry->job.uid == subject.uid && !std::exchange(is_own_user, true)) {
      answer.otherwise =
          entry->job.one_node_only ? DoorVerdict::kNoOtherNodes : DoorVerdict::kWrongKey;
    }
    if (entry->job.one_node_only) continue;
    if (++of_user[entry->job.uid] > kMostKeysOfUser) continue;
    const auto open = connections_.find(entry->job.uid);
    if (open == connections_.end() || open->second < kMostConnections) {
      answer.keys.push_back(entry->job.key);
    } else {
      is_full = true;
    }
  }
  if (is_full) {
    answer.otherwise = DoorVerdict::kFull;
  } else if (!is_own_user) {
    answer.otherwise = draining_ ? DoorVerdict::kDraining : DoorVerdict::kUnknownSubject;
  }
  answer.verdict = answer.keys.empty() ? answer.otherwise : DoorVerdict::kWelcome;
}

void ExpectedJobs::OnRefused(const DoorHello& hello, DoorVerdict verdict, const std::string& from) {
  if (verdict == DoorVerdict::kFull || verdict == DoorVerdict::kDraining) return;
  const ControlSubject subject = ToControlSubject(hello.subject);
  RefusedNode node;
  node.node_name = ReadableName(hello.node_name);
  node.from = from;
  node.uid = subject.uid;
  node.has_cluster_key = (hello.flags & kDoorHasClusterKey) != 0;
  std::optional<ExpectationId> meant;
  {
    MutexLock lock(mutex_);
    const std::vector<const Entry*> candidates = Candidates(subject);
    if (candidates.empty()) return;
    // Another user's, if that is all there is: without secrets, it might be meant all the same.
    const bool is_own_user = candidates.front()->job.uid == subject.uid;
    if (!is_own_user && candidates.front()->job.has_secret) return;
    // Its job has come since its key was asked for: it will find it at the next attempt.
    if (is_own_user && verdict == DoorVerdict::kUnknownSubject) return;
    if (candidates.front()->refusals++ >= kMostRefusals) return;
    meant = candidates.front()->id;
  }
  handlers_.refused(*meant, node);
}

void ExpectedJobs::Admit(DoorArrival arrival) {
  std::optional<ExpectationId> admitted;
  uid_t user = 0;
  {
    MutexLock lock(mutex_);
    for (const Entry* entry : Candidates(ToControlSubject(arrival.hello.subject))) {
      if (entry->job.one_node_only || entry->job.key != arrival.key) continue;
      admitted = entry->id;
      user = entry->job.uid;
      ++connections_[user];
      break;
    }
  }
  if (admitted.has_value()) handlers_.admit(*admitted, user, std::move(arrival));
}

}  // namespace ringd
