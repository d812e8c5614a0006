#include "client/core/attach/lone_rank.h"

#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "proto/shm/job_segment.h"
#include "proto/shm/session_segment.h"

namespace ringd::client {
namespace {

TensorDescription Described(const std::string& name) {
  TensorDescription tensor{};
  tensor.name = name;
  return tensor;
}

TEST_CASE("LoneRank: its memory passes the checks of what a ringd sends") {
  absl::StatusOr<LoneRank> lone = MakeLoneRank();
  REQUIRE(lone.ok());
  const Attachment& attachment = lone->attachment;
  const auto& session = *reinterpret_cast<const SessionHeader*>(attachment.segment.data());
  CHECK(CheckSessionSegment(session, attachment.segment.size()).ok());
  CHECK(session.arena_bytes == attachment.arena.size());
  CHECK(attachment.arena.size() > 0);
  CHECK(lone->notice.member_count == 1);
  const auto job = MemoryMapping::MapSealed(lone->job_segment.get(), lone->notice.segment_bytes);
  REQUIRE(job.ok());
  const auto& header = *reinterpret_cast<const JobSegmentHeader*>(job->data());
  CHECK(CheckJobSegment(header, job->size()).ok());
}

TEST_CASE("LoneRank: its lifeline says nothing and never hangs up") {
  absl::StatusOr<LoneRank> lone = MakeLoneRank();
  REQUIRE(lone.ok());
  pollfd entry{lone->attachment.lifeline.get(), POLLIN, 0};
  CHECK(::poll(&entry, 1, 20) == 0);
}

TEST_CASE("LoneRank: tensors are numbered by name, registrations by description, as by a ringd") {
  absl::StatusOr<LoneRank> lone = MakeLoneRank();
  REQUIRE(lone.ok());
  const Clock::time_point deadline = Clock::now();
  const auto joined = lone->control->Join({}, deadline, {});
  REQUIRE(joined.ok());
  CHECK(joined->combines_locally);
  CHECK(joined->node_count == 1);
  std::vector<TensorDescription> tensors = {Described("a"), Described("b"), Described("a"),
                                            Described("a")};
  tensors[2].shape = {7};
  const auto numbers = lone->control->Register(0, tensors, deadline);
  REQUIRE(numbers.ok());
  REQUIRE(numbers->size() == 4);
  CHECK((*numbers)[0].tensor == (*numbers)[2].tensor);
  CHECK((*numbers)[0].tensor != (*numbers)[1].tensor);
  CHECK((*numbers)[0].registration != (*numbers)[2].registration);
  CHECK((*numbers)[0].registration == (*numbers)[3].registration);
}

TEST_CASE("LoneRank: communicators have names of their own, and are so many") {
  absl::StatusOr<LoneRank> lone = MakeLoneRank();
  REQUIRE(lone.ok());
  const auto create = [&](const std::string& name) {
    AskedCommunicator asked;
    asked.name = name;
    asked.ranks = {0};
    return lone->control->CreateCommunicator(asked, Clock::now(), {});
  };
  const auto first = create("0");
  REQUIRE(first.ok());
  CHECK(absl::IsAlreadyExists(create("0").status()));
  for (int i = 1; i < 1024; ++i) REQUIRE(create(std::to_string(i)).ok());
  CHECK(absl::IsResourceExhausted(create("more").status()));
  REQUIRE(lone->control->DestroyCommunicator(first->id, Clock::now()).ok());
  CHECK(create("0").ok());
}

TEST_CASE("LoneRank: more names than fit are an error that says so") {
  absl::StatusOr<LoneRank> lone = MakeLoneRank();
  REQUIRE(lone.ok());
  std::vector<TensorDescription> tensors;
  for (std::uint32_t i = 0; i < kMaxLocalTensors; ++i)
    tensors.push_back(Described(std::to_string(i)));
  const auto held = lone->control->Register(0, tensors, Clock::now());
  REQUIRE(held.ok());
  const std::vector<TensorDescription> more = {Described("more")};
  const auto refused = lone->control->Register(0, more, Clock::now());
  CHECK(refused.status().code() == absl::StatusCode::kResourceExhausted);
  const std::vector<TensorDescription> known = {Described("7")};
  CHECK(lone->control->Register(0, known, Clock::now()).ok());
  // What has been said before is held once.
  CHECK(lone->control->Register(0, known, Clock::now()).ok());
  const std::vector<std::uint32_t> given_back = {(*held)[11].registration};
  REQUIRE(lone->control->Unregister(given_back, Clock::now()).ok());
  const auto again = lone->control->Register(0, more, Clock::now());
  REQUIRE(again.ok());
  CHECK((*again)[0].tensor == (*held)[11].tensor);
}

TEST_CASE("LoneRank: limits of the process bound the arena and bring no signal") {
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit{std::uint64_t{64} << 20, std::uint64_t{64} << 20};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(2);
    const absl::StatusOr<LoneRank> lone = MakeLoneRank();
    ::_exit(lone.ok() && lone->attachment.arena.size() == limit.rlim_cur ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

}  // namespace
}  // namespace ringd::client
