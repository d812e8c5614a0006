// Ranks of a one-node job as processes: what the kernel allows one to read of another, and what
// becomes of a tensor whose rank is stopped or dies.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/client/core/lanes/node/local_job.h"

namespace ringd::client {
namespace {

constexpr std::uint64_t kCount = 300'000;
constexpr uid_t kNobody = 65534;

// A forked child, which runs `body` and exits with what it returns. Killed if it is still there at
// the end.
class Child {
 public:
  explicit Child(const std::function<int()>& body) : pid_(::fork()) {
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) ::_exit(body());
  }
  ~Child() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void Signal(int number) const { REQUIRE(::kill(pid_, number) == 0); }
  // Its exit code, or minus the signal that ended it.
  int Await() {
    int status = 0;
    REQUIRE(::waitpid(std::exchange(pid_, 0), &status, 0) > 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  pid_t pid_;
};

template <typename Condition>
bool Soon(Condition condition) {
  const Clock::time_point deadline = InTenSeconds();
  while (!condition()) {
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

// A member's steps. In a child nothing of Catch2 may be used, so these only return.
//
// Until all can read all, or somebody has said that this will not be.
bool Settle(Member& member, Registration& registration, const JobSegmentView& segment) {
  return Soon([&] {
    static_cast<void>(member.operations->DirectUseOf(registration));
    bool settled = true;
    for (std::uint32_t m = 0; m < segment.member_count(); ++m) {
      const Reach reach = Reach::FromWord(segment.Member(m).reach.load());
      if (reach.state > Reach::State::kReadsAll) return true;
      settled = settled && reach.state == Reach::State::kReadsAll;
    }
    return settled;
  });
}

// Whether the sum of two members, who gave 1 and 2, has come.
bool AwaitSum(Member& member, std::uint64_t sequence, const std::vector<float>& data) {
  OperationOutcome outcome;
  if (!TryFinish(member, sequence, outcome) || outcome.status != 0) return false;
  for (const float value : data) {
    if (value != 3.0F) return false;
  }
  return true;
}

// Member 1 of `job`: submits twos, tells so, and waits for the sum.
int SecondMember(LocalJob& job, Registration& registration, DirectReading reading) {
  Member& member = job[1];
  member.operations = std::make_unique<LocalOperations>(member.memory, kCapacity, member.state,
                                                        member.spin_budget, reading, nullptr);
  std::vector<float> data(kCount, 2.0F);
  std::uint64_t sequence = 0;
  if (!Settle(member, registration, member.memory.segment()) ||
      !TrySubmitAnywhere(member, registration, data.data(), data.data(), sequence)) {
    return 1;
  }
  return AwaitSum(member, sequence, data) ? 0 : 2;
}

// A job whose second member is a process of its own. The first may not be started before the fork:
// it would be in both.
struct TwoProcesses {
  explicit TwoProcesses(DirectReading first, DirectReading second)
      : job(2, std::chrono::nanoseconds(0), false), child([this, second] {
          if (!job[1].memory.Await(InTenSeconds()).ok()) return 3;
          return SecondMember(job, tensor.registration, second);
        }) {
    job[0].Start(first);
    REQUIRE(Settle(job[0], tensor.registration, job[0].memory.segment()));
  }
  bool direct() { return job[0].operations->DirectUseOf(tensor.registration).kept_chunks != 0; }
  // The first member's part, once the second has submitted.
  std::uint64_t SubmitSecond() {
    REQUIRE(Soon([&] { return job[0].memory.segment().Slot(0, 1, 0).occurrence.load() == 1; }));
    std::uint64_t sequence = 0;
    REQUIRE(TrySubmitAnywhere(job[0], tensor.registration, data.data(), data.data(), sequence));
    return sequence;
  }

  Floats tensor{0, 0, kCount};
  std::vector<float> data = std::vector<float>(kCount, 1.0F);
  LocalJob job;
  Child child;
};

TEST_CASE("Ordinary memory: two processes read each other's and get the sum") {
  TwoProcesses two(DirectReading::kAllowToAll, DirectReading::kAllowToAll);
  CHECK(two.direct());
  const std::uint64_t sequence = two.SubmitSecond();
  CHECK(AwaitSum(two.job[0], sequence, two.data));
  CHECK(two.child.Await() == 0);
}

TEST_CASE(
    "Ordinary memory: one process that does not want it is enough for copies, and the sum comes") {
  TwoProcesses two(DirectReading::kAllowToAll, DirectReading::kOff);
  CHECK_FALSE(two.direct());
  const std::uint64_t sequence = two.SubmitSecond();
  CHECK(AwaitSum(two.job[0], sequence, two.data));
  CHECK(two.child.Await() == 0);
}

TEST_CASE(
    "Ordinary memory: a stopped rank's part is read all the same, and it goes on where it was") {
  TwoProcesses two(DirectReading::kAllowToAll, DirectReading::kAllowToAll);
  REQUIRE(two.direct());
  REQUIRE(Soon([&] { return two.job[0].memory.segment().Slot(0, 1, 0).occurrence.load() == 1; }));
  two.child.Signal(SIGSTOP);
  const std::uint64_t sequence = two.SubmitSecond();
  CHECK(AwaitSum(two.job[0], sequence, two.data));
  two.child.Signal(SIGCONT);
  CHECK(two.child.Await() == 0);
}

TEST_CASE("Ordinary memory: a rank that died with its part unread is named, in bounded time") {
  TwoProcesses two(DirectReading::kAllowToAll, DirectReading::kAllowToAll);
  REQUIRE(two.direct());
  REQUIRE(Soon([&] { return two.job[0].memory.segment().Slot(0, 1, 0).occurrence.load() == 1; }));
  two.child.Signal(SIGKILL);
  CHECK(two.child.Await() == -SIGKILL);
  const Clock::time_point start = Clock::now();
  const std::uint64_t sequence = two.SubmitSecond();
  const OperationOutcome outcome = Finish(two.job[0], sequence);
  CHECK(Clock::now() - start < LocalOperations::kCauseGrace + std::chrono::seconds(10));
  CHECK(outcome.status == static_cast<int>(absl::StatusCode::kAborted));
  REQUIRE(outcome.text != nullptr);
  CHECK(outcome.text->find("rank 11 any more (No such process)") != std::string::npos);
}

TEST_CASE("Ordinary memory: who looks every few seconds only hears of it, too") {
  TwoProcesses two(DirectReading::kAllowToAll, DirectReading::kAllowToAll);
  REQUIRE(two.direct());
  REQUIRE(Soon([&] { return two.job[0].memory.segment().Slot(0, 1, 0).occurrence.load() == 1; }));
  two.child.Signal(SIGKILL);
  CHECK(two.child.Await() == -SIGKILL);
  const std::uint64_t sequence = two.SubmitSecond();
  LocalOperations& operations = *two.job[0].operations;
  const Clock::time_point start = Clock::now();
  WaitResult result = WaitResult::kTimeout;
  while (result == WaitResult::kTimeout && Clock::now() < start + std::chrono::milliseconds(500)) {
    result = operations.Test(sequence);
  }
  REQUIRE(result == WaitResult::kTimeout);
  std::this_thread::sleep_for(LocalOperations::kSameCause + std::chrono::milliseconds(100));
  CHECK(operations.Test(sequence) == WaitResult::kDone);
}

// Runs as a user to whom the kernel can refuse something; two members that are processes of that
// user, of which the second does not let itself be read.
int RefusedReading() {
  if (::getuid() == 0 && ::setresuid(kNobody, kNobody, kNobody) != 0) return 10;
  // Changing the user has switched this off.
  if (::prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) != 0) return 11;
  LocalJob job(2, std::chrono::nanoseconds(0), false);
  Floats tensor(0, 0, kCount);
  const pid_t second = ::fork();
  if (second == 0) {
    if (!job[1].memory.Await(InTenSeconds()).ok()) ::_exit(3);
    if (::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) ::_exit(4);
    ::_exit(SecondMember(job, tensor.registration, DirectReading::kIfAllowed));
  }
  Member& first = job[0];
  if (!first.memory.Await(InTenSeconds()).ok()) return 12;
  first.operations = std::make_unique<LocalOperations>(
      first.memory, kCapacity, first.state, first.spin_budget, DirectReading::kIfAllowed, nullptr);
  const JobSegmentView& segment = first.memory.segment();
  if (!Settle(first, tensor.registration, segment)) return 13;
  const Reach reach = Reach::FromWord(segment.Member(0).reach.load());
  if (reach.state != Reach::State::kCannot || reach.error != EPERM || reach.member != 1) return 14;
  if (first.operations->DirectUseOf(tensor.registration).kept_chunks != 0) return 15;
  std::vector<float> data(kCount, 1.0F);
  std::uint64_t sequence = 0;
  if (!TrySubmitAnywhere(first, tensor.registration, data.data(), data.data(), sequence)) return 16;
  if (!AwaitSum(first, sequence, data)) return 17;
  int status = 0;
  if (::waitpid(second, &status, 0) != second || status != 0) return 18;
  return 0;
}

TEST_CASE("Ordinary memory: where the kernel refuses, all ranks copy, and the sum comes") {
  Child child(RefusedReading);
  CHECK(child.Await() == 0);
}

}  // namespace
}  // namespace ringd::client
