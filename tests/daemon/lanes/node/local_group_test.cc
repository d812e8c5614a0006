// What ringd sees of a one-node job: the test plays the ranks and writes into the segment as they
// would, or as they should not.
#include "daemon/lanes/node/local_group.h"

#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "proto/attach/handshake.h"
#include "proto/base/unix_socket.h"
#include "proto/shm/chunk_claims.h"
#include "proto/shm/in_flight_index.h"
#include "tests/daemon/lanes/node/local_job.h"
#include "tests/daemon/lanes/rank_exchange/attached_rank.h"

namespace ringd {
namespace {

using std::chrono::milliseconds;

// Of this process, from /proc/self/status.
std::uint64_t SharedResidentKilobytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    std::uint64_t kilobytes = 0;
    if (word == "RssShmem:" && status >> kilobytes) return kilobytes;
  }
  FAIL("no RssShmem");
  return 0;
}

const Clock::time_point kStart = Clock::now();

TEST_CASE("LocalGroup: every rank gets the segment and the others' arenas") {
  LocalJob job(3);
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
  LocalJob job(1);
  CHECK(*job.group->Hold("a") == 0);
  CHECK(*job.group->Hold("b") == 1);
  CHECK(*job.group->Hold("a") == 0);
  CHECK(job.group->NameOf(1) == "b");
  CHECK_FALSE(job.group->NameOf(2).has_value());
}

TEST_CASE("LocalGroup: there are no more names than the segment has places for") {
  LocalJob job(1);
  for (std::uint32_t i = 0; i < kMaxLocalTensors; ++i) {
    if (!job.group->Hold(std::to_string(i)).ok()) FAIL("name " << i);
  }
  const auto one_more = job.group->Hold("one more");
  CHECK(absl::IsResourceExhausted(one_more.status()));
  CHECK(job.group->Hold("7").ok());
  job.group->Release(11);
  CHECK(job.group->Hold("one more").value() == 11);
  CHECK(job.group->NameOf(11) == "one more");
}

TEST_CASE("LocalGroup: a rank that has not submitted is who the others wait for") {
  LocalJob job(3);
  REQUIRE(job.group->Hold("a").ok());
  REQUIRE(job.group->Hold("b").ok());
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
  LocalJob job(2);
  REQUIRE(job.group->Hold("a").ok());
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
  LocalJob job(2);
  REQUIRE(job.group->Hold("a").ok());
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
  // Another of its threads has begun at another tensor since, and only that is said.
  job.view.Member(1).reducing = 2;
  CHECK(job.group->Waiting(kStart, kStart).empty());
  REQUIRE(ChunkClaims(job.view.Tensor(0), 0, 2).Claim(0) == 0);
  CHECK(job.group->MembersWithout("a") == std::vector<int>{1});
  job.view.Tensor(0).finished = 1;
  CHECK(job.group->Waiting(kStart, kStart).empty());
}

TEST_CASE("LocalGroup: a wait is known at once when the looks have found it twice") {
  LocalJob job(2);
  job.NameTensors(2);
  job.Post(1, 0, 0);
  job.group->Look(kStart);
  CHECK_FALSE(job.group->WaitingSince().has_value());
  job.group->Look(kStart + milliseconds(100));
  CHECK(job.group->WaitingSince() == kStart);
  const LocalWaits::Work before = job.group->work();
  CHECK(job.group->WaitingSince() == kStart);
  CHECK(job.group->work().words == before.words);
  job.Post(1, 1, 0);
  job.group->Look(kStart + milliseconds(1100));
  CHECK_FALSE(job.group->WaitingSince().has_value());
}

TEST_CASE("LocalGroup: looks read what is in flight, not what there is") {
  LocalJob job(8);
  job.NameTensors(kMaxLocalTensors);
  for (std::uint32_t t = 0; t < 100; ++t) {
    job.Post(t, 0, 0);
    job.End(t, 0, 0);
  }
  job.Post(40'000, 0, 0);
  job.Post(40'000, 3, 0);
  for (int i = 0; i < 10; ++i) job.group->Look(kStart + milliseconds(100 * i));
  CHECK(job.group->WaitingSince() == kStart);
  CHECK(job.group->work().words == 2 * 10);
  CHECK(job.group->work().tensors <= 9);  // once a look from the second on
  const auto waiting = job.group->Waiting(kStart, kStart + milliseconds(1000));
  REQUIRE(waiting.size() == 2);
  CHECK(waiting[0].tensor == "40000");
  CHECK(waiting[0].absent == std::vector<int>{1, 2, 4, 5, 6, 7});
  CHECK(job.group->work().tensors <= 10);
}

TEST_CASE("LocalGroup: one look reads a bounded amount, and the next ones go on") {
  constexpr std::size_t kMembers = 40;
  LocalJob job(kMembers);
  job.NameTensors(kMaxLocalTensors);
  // Each says that it has as much in flight as it may, and each names other tensors.
  constexpr std::uint32_t kCapacity = 16;  // of AttachedRank
  for (std::uint32_t m = 0; m < kMembers; ++m) {
    job.view.Member(m).posted = 1;
    job.view.Member(m).in_flight_places = ~0U;
    for (std::uint32_t p = 0; p < kCapacity; ++p) {
      job.view.InFlight(m, p) = InFlightTensor{m * kCapacity + p, 0}.ToWord();
    }
  }
  std::uint64_t most = 0;
  int looks = 0;
  for (; !job.group->WaitingSince().has_value() && looks < 1000; ++looks) {
    const LocalWaits::Work before = job.group->work();
    job.group->Look(kStart + milliseconds(100 * looks));
    CHECK(job.group->work().words - before.words <= kMembers * kCapacity);
    most = std::max(most, job.group->work().tensors - before.tensors);
  }
  // The first pass examines nothing.
  CHECK(looks == 3);
  CHECK((most - 1) * TensorView::Bytes(kMembers) <= LocalWaits::kBytesPerLook);
  CHECK(job.group->work().tensors == kMembers * kCapacity);
  // A list reads no more than a look does, and says so.
  bool all = true;
  const auto waiting = job.group->Waiting(kStart, kStart + milliseconds(1000), all);
  CHECK_FALSE(all);
  const std::uint64_t listed = job.group->work().tensors - kMembers * kCapacity;
  CHECK(waiting.size() == listed);
  CHECK((listed - 1) * TensorView::Bytes(kMembers) <= LocalWaits::kBytesPerLook);
  CHECK(listed * TensorView::Bytes(kMembers) >= LocalWaits::kBytesPerLook);
}

TEST_CASE("LocalGroup: a list that is not all has the oldest, for whom a job stalls") {
  constexpr std::size_t kMembers = 40;
  constexpr std::uint32_t kCapacity = 16;
  LocalJob job(kMembers);
  job.NameTensors(kMaxLocalTensors);
  // The last member's last place has waited for longest.
  const auto say = [&](std::uint32_t m, std::uint32_t p) {
    job.view.Member(m).posted = 1;
    job.view.Member(m).in_flight_places = kCapacity;
    job.view.InFlight(m, p) = InFlightTensor{m * kCapacity + p, 0}.ToWord();
  };
  say(kMembers - 1, kCapacity - 1);
  job.group->Look(kStart);
  for (std::uint32_t m = 0; m < kMembers; ++m) {
    for (std::uint32_t p = 0; p < kCapacity; ++p) say(m, p);
  }
  bool all = true;
  const auto later = kStart + milliseconds(1000);
  const auto waiting = job.group->Waiting(later, later, all);
  CHECK_FALSE(all);
  REQUIRE_FALSE(waiting.empty());
  CHECK(waiting.front().tensor == std::to_string(kMembers * kCapacity - 1));
  CHECK(waiting.front().since == kStart);
}

TEST_CASE("LocalGroup: looking at tensors that nobody has touched makes no memory") {
  LocalJob job(8);
  job.NameTensors(kMaxLocalTensors);
  const auto say = [&](std::uint32_t first) {
    for (std::uint32_t p = 0; p < 16; ++p) {
      job.view.InFlight(5, p) = InFlightTensor{first + p, 0}.ToWord();
    }
    job.view.Member(5).in_flight_places = 16;
    ++job.view.Member(5).posted;
  };
  say(0);
  job.group->Look(kStart);
  const std::uint64_t touched = job.TouchedBytes();
  const std::uint64_t resident = SharedResidentKilobytes();
  for (std::uint32_t first = 0; first < kMaxLocalTensors; first += 16) {
    say(first);
    const auto now = kStart + milliseconds(2000) * (first + 1);
    job.group->Look(now);
    job.group->Look(now + milliseconds(100));
    if (job.group->Waiting(now, now + milliseconds(100)).size() != 16) FAIL("tensor " << first);
    static_cast<void>(job.group->MembersWithout(std::to_string(first)));
  }
  CHECK(job.TouchedBytes() == touched);
  CHECK(SharedResidentKilobytes() <= resident + 64);
}

TEST_CASE("LocalGroup: ranks that write nonsense are shown, not believed") {
  LocalJob job(2);
  REQUIRE(job.group->Hold("a").ok());
  std::memset(job.segment.data() + sizeof(JobSegmentHeader), 0xff, std::size_t{64} << 10);
  job.group->Look(kStart);
  static_cast<void>(job.group->Waiting(kStart, kStart));
  const MemberCounters counters = job.group->Counters(0);
  CHECK(counters.submitted >= counters.ended);
  CHECK(counters.ended >= counters.failed);
  for (const int member : job.group->MembersWithout("a")) CHECK(member < 2);
}

TEST_CASE("LocalGroup: says whether the ranks read each other's ordinary memory, and why not") {
  LocalJob job(2);
  const auto set = [&](std::uint32_t member, const Reach& reach) {
    job.view.Member(member).reach.store(reach.ToWord());
  };
  CHECK(job.group->OrdinaryMemory().find("a large tensor will") != std::string::npos);
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
