// What ringd sees of a one-node job: the test plays the ranks and writes into the segment as they would, or as
// they should not.
#include "daemon/jobs/communicator/local_group.h"

#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "proto/attach/handshake.h"
#include "proto/base/unix_socket.h"
#include "tests/daemon/fast_path/attached_rank.h"

namespace ringd {
namespace {

using std::chrono::milliseconds;

struct Job {
  explicit Job(std::size_t count) {
    std::vector<std::int32_t> numbers;
    std::vector<std::shared_ptr<Session>> sessions;
    for (std::size_t m = 0; m < count; ++m) {
      ranks.push_back(std::make_unique<AttachedRank>());
      sessions.push_back(ranks.back()->session);
      numbers.push_back(static_cast<std::int32_t>(m + 20));
    }
    auto created = LocalGroup::Create("job", numbers, sessions);
    REQUIRE(created.ok());
    group = *std::move(created);
    UniqueFd fd;
    const auto notice = ranks[0]->Receive<JobSegmentNotice>(NoticeKind::kJobSegment, fd);
    auto mapped = MemoryMapping::Map(fd.get(), notice.segment_bytes);
    REQUIRE(mapped.ok());
    segment = *std::move(mapped);
    view = JobSegmentView(segment.data(), notice.member_count);
  }

  void Post(std::uint32_t tensor, std::size_t member, std::uint64_t occurrence,
            std::uint32_t meta = 0) const {
    SubmissionSlot& slot = view.Slot(tensor, member, occurrence);
    slot.meta_id = meta;
    slot.occurrence.store(occurrence + 1);
    ++view.Member(member).posted;
  }
  void End(std::uint32_t tensor, std::size_t member, std::uint64_t occurrence) const {
    view.Ended(tensor, member).store(occurrence + 1);
    ++view.Member(member).ended;
  }

  std::vector<std::unique_ptr<AttachedRank>> ranks;
  std::unique_ptr<LocalGroup> group;
  MemoryMapping segment;
  JobSegmentView view;
};

const Clock::time_point kStart = Clock::now();

TEST_CASE("LocalGroup: every rank gets the segment and the others' arenas") {
  Job job(3);
  for (std::uint32_t m = 1; m < 3; ++m) {
    UniqueFd fd;
    const auto segment = job.ranks[m]->Receive<JobSegmentNotice>(NoticeKind::kJobSegment, fd);
    CHECK(segment.member == m);
    CHECK(segment.member_count == 3);
    auto mapped = MemoryMapping::Map(fd.get(), segment.segment_bytes);
    REQUIRE(mapped.ok());
    CHECK(
        CheckJobSegment(*reinterpret_cast<const JobSegmentHeader*>(mapped->data()), mapped->size())
            .ok());
    CHECK(JobSegmentView(mapped->data(), 3).Member(2).rank == 22);
    for (std::uint32_t other = 0; other < 3; ++other) {
      if (other == m) continue;
      const auto arena = job.ranks[m]->Receive<MemberArenaNotice>(NoticeKind::kMemberArena, fd);
      CHECK(arena.member == other);
      CHECK(arena.arena_bytes == AttachedRank::kArenaBytes);
      CHECK(MemoryMapping::Map(fd.get(), AttachedRank::kArenaBytes).ok());
    }
  }
}

TEST_CASE("LocalGroup: a name keeps its number, and other names have others") {
  Job job(1);
  CHECK(*job.group->Number("a") == 0);
  CHECK(*job.group->Number("b") == 1);
  CHECK(*job.group->Number("a") == 0);
  CHECK(job.group->NameOf(1) == "b");
  CHECK_FALSE(job.group->NameOf(2).has_value());
}

TEST_CASE("LocalGroup: there are no more names than the segment has places for") {
  Job job(1);
  for (std::uint32_t i = 0; i < kMaxLocalTensors; ++i) {
    if (!job.group->Number(std::to_string(i)).ok()) FAIL("name " << i);
  }
  const auto one_more = job.group->Number("one more");
  CHECK(absl::IsResourceExhausted(one_more.status()));
  CHECK(job.group->Number("7").ok());
}

TEST_CASE("LocalGroup: a rank that has not submitted is who the others wait for") {
  Job job(3);
  REQUIRE(job.group->Number("a").ok());
  REQUIRE(job.group->Number("b").ok());
  CHECK_FALSE(job.group->AnyInFlight());
  job.Post(1, 0, 0, 5);
  job.Post(1, 2, 0, 5);
  CHECK(job.group->AnyInFlight());
  job.group->Look(kStart);
  const auto waiting = job.group->Waiting(kStart, kStart + milliseconds(10));
  REQUIRE(waiting.size() == 2);
  CHECK(waiting[0].tensor == "b");
  CHECK(waiting[0].member == 0);
  CHECK(waiting[0].meta_id == 5);
  CHECK(waiting[0].since == kStart);
  CHECK(waiting[0].absent == std::vector<int>{1});
  CHECK_FALSE(waiting[0].arrived);
  CHECK(waiting[1].member == 2);
  CHECK(job.group->MembersWithout("b") == std::vector<int>{1});
  CHECK(job.group->MembersWithout("a") == std::vector<int>{0, 1, 2});
  CHECK(job.group->MembersWithout("unheard of") == std::vector<int>{0, 1, 2});
}

TEST_CASE("LocalGroup: since when something waits begins anew with each occurrence") {
  Job job(2);
  REQUIRE(job.group->Number("a").ok());
  job.Post(0, 0, 0);
  job.group->Look(kStart);
  job.Post(0, 1, 0);
  job.End(0, 0, 0);
  job.End(0, 1, 0);
  job.Post(0, 0, 1);
  const auto later = kStart + milliseconds(5000);
  job.group->Look(later);
  CHECK(job.group->Waiting(later - milliseconds(1), later).empty());
  REQUIRE(job.group->Waiting(later, later).size() == 1);
  CHECK(job.group->Waiting(later, later).front().since == later);
}

TEST_CASE(
    "LocalGroup: what all have submitted waits for nobody, unless a rank stops in the middle of "
    "it") {
  Job job(2);
  REQUIRE(job.group->Number("a").ok());
  job.Post(0, 0, 0);
  job.Post(0, 1, 0);
  job.group->Look(kStart);
  CHECK(job.group->Waiting(kStart, kStart).empty());
  job.view.Member(1).reducing = 1;  // the tensor's number, + 1
  const auto waiting = job.group->Waiting(kStart, kStart);
  REQUIRE(waiting.size() == 2);
  CHECK(waiting[0].arrived);
  CHECK(waiting[0].absent == std::vector<int>{1});
  CHECK(job.group->MembersWithout("a") == std::vector<int>{1});
  job.view.Tensor(0).finished = 1;
  CHECK(job.group->Waiting(kStart, kStart).empty());
}

TEST_CASE("LocalGroup: ranks that write nonsense are shown, not believed") {
  Job job(2);
  REQUIRE(job.group->Number("a").ok());
  std::memset(job.segment.data() + sizeof(JobSegmentHeader), 0xff, std::size_t{64} << 10);
  job.group->Look(kStart);
  static_cast<void>(job.group->Waiting(kStart, kStart));
  const LocalMemberCounters counters = job.group->Counters(0);
  CHECK(counters.submitted >= counters.ended);
  CHECK(counters.ended >= counters.failed);
  for (const int member : job.group->MembersWithout("a")) CHECK(member < 2);
}

TEST_CASE("LocalGroup: says whether the ranks read each other's ordinary memory, and why not") {
  Job job(2);
  const auto set = [&](std::uint32_t member, const Reach& reach) {
    job.view.Member(member).reach.store(reach.ToWord());
  };
  CHECK(job.group->OrdinaryMemory().find("so far") != std::string::npos);
  set(0, {Reach::State::kReadsAll, 0, 0});
  set(1, {Reach::State::kReadsAll, 0, 0});
  CHECK(job.group->OrdinaryMemory() == "read directly");
  set(1, {Reach::State::kCannot, EPERM, 0});
  CHECK(job.group->OrdinaryMemory() ==
        "copied: rank 21 can't read rank 20 (Operation not permitted)");
  set(1, {Reach::State::kCannot, 0, 200});  // what a hostile member can say
  CHECK(job.group->OrdinaryMemory() ==
        "copied: rank 21 can't read another rank (it has another pid here)");
  set(0, {Reach::State::kOff, 0, 0});
  CHECK(job.group->OrdinaryMemory().find("rank 20 does not") != std::string::npos);
}

}  // namespace
}  // namespace ringd
