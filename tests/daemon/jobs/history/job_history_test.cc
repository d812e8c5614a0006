#include "daemon/jobs/history/job_history.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace ringd {
namespace {

v1::Job JobOf(uid_t uid, const std::string& name) {
  v1::Job job;
  job.set_uid(uid);
  job.set_job_id(name);
  return job;
}

// The names, the last first, as a list asks for them.
std::vector<std::string> NamesIn(const JobHistory& history) {
  std::vector<std::string> names;
  std::uint64_t number = UINT64_MAX;
  while (const JobHistory::Entry* entry = history.Before(number)) {
    names.push_back(entry->job.job_id());
    number = entry->number;
  }
  return names;
}

TEST_CASE("JobHistory: tells the last job first, and keeps so many of a user") {
  JobHistory history(2);
  CHECK(history.Before(UINT64_MAX) == nullptr);
  for (const char* name : {"a", "b", "c"}) history.Add(JobOf(1000, name));
  CHECK(NamesIn(history) == std::vector<std::string>{"c", "b"});
}

TEST_CASE("JobHistory: who runs many jobs pushes out his own, and nobody else's") {
  JobHistory history(2);
  history.Add(JobOf(1000, "mine"));
  for (int i = 0; i < 100; ++i) history.Add(JobOf(2000, "flood" + std::to_string(i)));
  CHECK(NamesIn(history) == std::vector<std::string>{"flood99", "flood98", "mine"});
}

TEST_CASE("JobHistory: is bounded also where there are many users") {
  JobHistory history(2);
  for (uid_t uid = 0; uid < 100; ++uid) {
    history.Add(JobOf(uid, "first"));
    history.Add(JobOf(uid, "second"));
    REQUIRE(history.size() <= 2 * JobHistory::kMostUsers);
  }
  CHECK(history.size() == 2 * JobHistory::kMostUsers);
}

TEST_CASE("JobHistory: a smaller limit drops the oldest, and 0 keeps nothing") {
  JobHistory history(3);
  for (const char* name : {"a", "b", "c"}) history.Add(JobOf(1000, name));
  history.SetLimit(1);
  CHECK(NamesIn(history) == std::vector<std::string>{"c"});
  history.SetLimit(0);
  CHECK(history.size() == 0);
  history.Add(JobOf(1000, "d"));
  CHECK(history.size() == 0);
}

TEST_CASE("JobHistory: cuts what a job could make long, and says by how much") {
  JobHistory history(1);
  v1::Job job = JobOf(1000, "large");
  for (int rank = 0; rank < 1000; ++rank) job.add_local_members()->set_rank(rank);
  job.set_failure(std::string(100'000, 'x'));
  JobHistory::Cut(job);
  history.Add(job);
  const v1::Job& kept = history.Before(UINT64_MAX)->job;
  CHECK(kept.local_members_size() == JobHistory::kMembersKept);
  CHECK(kept.local_members_left_out() == 1000 - JobHistory::kMembersKept);
  CHECK(kept.failure().size() == JobHistory::kFailureBytesKept);
  CHECK(kept.ByteSizeLong() < 16'384);
}

TEST_CASE("JobHistory: whatever is said of a job takes less than 24 KiB") {
  const std::string text(20'000, 'x');
  v1::Job job = JobOf(1000, text);
  for (int rank = 0; rank < 1000; ++rank) {
    v1::Member& member = *job.add_local_members();
    member.set_host(text);
    member.set_state(text);
    job.add_missing_ranks(rank);
  }
  for (std::string* field : {job.mutable_state(), job.mutable_rendezvous(), job.mutable_failure(),
                             job.mutable_waits_for(), job.mutable_stall()->mutable_why()}) {
    *field = text;
  }
  // A field that nobody knows is kept by parsers.
  REQUIRE(job.MergeFromString("\xfa\x3f" + std::string("\xa0\x9c\x01") + text));
  JobHistory history(1);
  JobHistory::Cut(job);
  history.Add(job);
  const v1::Job& kept = history.Before(UINT64_MAX)->job;
  CHECK(kept.ByteSizeLong() < 24'576);
  CHECK(kept.SpaceUsedLong() < 40'000);
  CHECK(kept.missing_ranks_size() == JobHistory::kMembersKept);
  CHECK(kept.missing_left_out() == 1000 - JobHistory::kMembersKept);
  CHECK(kept.GetReflection()->GetUnknownFields(kept).empty());
}

}  // namespace
}  // namespace ringd
