// A node's part in a job over several nodes, whose results reducers copy: when the ranks hear of them, and
// what is written where if the job fails meanwhile. The test plays the backend, the other node and the
// reducers.
#include "daemon/jobs/communicator/job_communicator.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "backends/collectives/chunking.h"
#include "daemon/attach/session_factory.h"
#include "proto/base/unix_socket.h"
#include "tests/daemon/execution/helped_nodes.h"

namespace ringd {
namespace {

constexpr std::size_t kBytes = std::size_t{2} << 20;
constexpr std::uint32_t kChunk = 128 * 1024;
constexpr std::size_t kRanks = 2;

// Takes requests and completes them when it is told to.
class PlayedCommunicator final : public Communicator {
 public:
  bool TryPost(const CollectiveRequest& request) noexcept override {
    posted.push_back(request);
    return true;
  }
  std::size_t Poll(std::span<Completion> out) noexcept override {
    if (finished.empty()) return 0;
    out[0] = finished.back();
    finished.pop_back();
    return 1;
  }
  void Cancel(OperationId) noexcept override {}
  void Abort(absl::string_view) noexcept override { aborted = true; }
  absl::Status health() const override { return absl::OkStatus(); }
  NodeIndex lost_node() const noexcept override { return NodeIndex(-1); }
  CommunicatorStatistics Statistics() const override { return {}; }

  // What the ring would do with the operation, but for the wire: the other node's sums and results are 1.
  void RunRing(const CollectiveRequest& request) {
    const Chunking grid(kBytes, 2, kChunk);
    const std::vector<float> message(kChunk / 4, 1.0F);
    const auto* bytes = reinterpret_cast<const std::byte*>(message.data());
    for (std::uint32_t chunk = 0; chunk < grid.ChunkCount(0); ++chunk) {
      const ByteRange own = grid.Chunk(0, chunk);
      const ByteRange other = grid.Chunk(1, chunk);
      REQUIRE(request.stages->Input(own.begin, own.end) != nullptr);
      REQUIRE(request.stages->AddLastInput(other.begin, other.end, bytes) != nullptr);
      request.stages->OnResult(own.begin, own.end, bytes, false);
    }
  }
  void Complete(const CollectiveRequest& request, CollectiveOutcome outcome) {
    Completion completion;
    completion.id = request.id;
    completion.outcome = outcome;
    completion.times.posted = completion.times.finished = Clock::now();
    finished.push_back(completion);
  }

  std::vector<CollectiveRequest> posted;
  std::vector<Completion> finished;
  bool aborted = false;
};

class SilentLink final : public CoordinatorLink {
 public:
  void Send(v1::NodeMessage) override {}
};

// Two ranks of node 0 of two, with one tensor each at the beginning of their arenas.
struct PlayedJob {
  PlayedJob() {
    Membership membership;
    membership.self = NodeIndex(0);
    for (int node = 0; node < 2; ++node) {
      MemberNode member;
      member.name = node == 0 ? "node-a" : "node-b";
      for (int local = 0; local < static_cast<int>(kRanks); ++local) {
        MemberRank rank;
        rank.rank = Rank(node * static_cast<int>(kRanks) + local);
        rank.local_rank = LocalRank(local);
        member.ranks.push_back(rank);
      }
      membership.nodes.push_back(std::move(member));
    }
    std::vector<std::shared_ptr<Session>> held;
    for (std::size_t m = 0; m < kRanks; ++m) {
      auto ends = UnixSocketPair();
      REQUIRE(ends.ok());
      PeerCredentials self;
      self.pid = 1;
      auto made = MakeSession(SessionId(1 + m), {2 * kBytes, 16}, self, ends->second.get());
      REQUIRE(made.ok());
      made->resources->lifeline = std::move(ends->second);
      own_ends.push_back(std::move(ends->first));
      arenas.push_back(reinterpret_cast<float*>(made->resources->arena.data()));
      held.push_back(std::make_shared<Session>(std::move(made->resources)));
      sessions.push_back(held.back());
    }
    auto played = std::make_unique<PlayedCommunicator>();
    wire = played.get();
    JobCommunicator::Options options;
    options.job_id = "job";
    options.reducers = &reducers;
    JobCommunicator::Way way;
    way.wire = std::move(played);
    communicator = std::make_unique<JobCommunicator>(
        std::move(options), std::make_shared<const Membership>(std::move(membership)), held,
        std::move(way), &link);
    registration.name = "t";
    registration.meta.shape = {kBytes / 4};
    registration.bytes = kBytes;
    REQUIRE(communicator->Number(registration).ok());
  }

  // The last rank's source comes in pieces, if `progress` is not null.
  void Submit(StagingProgress* progress = nullptr) {
    for (std::size_t m = 0; m < kRanks; ++m) {
      auto* tensor = reinterpret_cast<std::byte*>(arenas[m]);
      CheckedSubmission submission;
      submission.sequence = submissions;
      submission.registration = &registration;
      submission.source = submission.destination = tensor;
      submission.progress = m + 1 == kRanks ? progress : nullptr;
      submission.source_in_pieces = submission.progress != nullptr;
      communicator->Submit(static_cast<int>(m), submission, Clock::now());
    }
    ++submissions;
  }
  // Both nodes have the tensor: the operation is posted, and the ring runs to its end.
  void StartAndRunRing() {
    Submit();
    Advance();
    REQUIRE(communicator->OnMessage(Execute{operations++, {"t"}}, Clock::now()).ok());
    Advance();
    REQUIRE(wire->posted.size() == operations);
    wire->RunRing(wire->posted.back());
  }
  void Complete(CollectiveOutcome outcome = CollectiveOutcome::kDone) {
    wire->Complete(wire->posted.back(), outcome);
  }
  std::size_t Advance() {
    auto work = communicator->Advance(Clock::now());
    return work.ok() ? *work : 0;
  }
  std::uint64_t Completed(std::size_t member) const { return sessions[member].lock()->completed(); }
  std::uint64_t Failed(std::size_t member) const { return sessions[member].lock()->failed(); }
  bool HasResults(std::size_t member) const {
    const float* const tensor = arenas[member];
    return tensor[0] == 1.0F && tensor[kBytes / 8] == 1.0F && tensor[kBytes / 4 - 1] == 1.0F;
  }

  SteppedReducers reducers{SteppedReducers::Speed::kRandom, 1};
  SilentLink link;
  PlayedCommunicator* wire = nullptr;
  std::vector<UniqueFd> own_ends;
  std::vector<std::weak_ptr<Session>> sessions;
  std::vector<float*> arenas;
  Registration registration;
  std::unique_ptr<JobCommunicator> communicator;
  std::uint64_t submissions = 0;
  std::uint32_t operations = 0;
};

TEST_CASE("JobCommunicator: ranks hear of a result when the last piece is in its place") {
  PlayedJob job;
  job.StartAndRunRing();
  while (job.reducers.claimed() < 1) job.reducers.Step();
  job.Complete();
  // The engine does what nobody has begun, a piece in each turn, and then has nothing to do.
  int turns = 0;
  while (job.Advance() > 0) ++turns;
  CHECK(turns >= 15);
  CHECK(job.Completed(0) == 0);
  CHECK(job.Completed(1) == 0);
  CHECK_FALSE(job.communicator->Quiet());
  const int wakes = job.reducers.wakes;
  while (job.reducers.claimed() > 0) job.reducers.FinishOne();
  CHECK(job.reducers.wakes == wakes + 1);
  CHECK(job.Advance() > 0);
  for (std::size_t m = 0; m < kRanks; ++m) {
    CHECK(job.Completed(m) == 1);
    CHECK(job.Failed(m) == 0);
    CHECK(job.HasResults(m));
  }
  CHECK(job.communicator->Idle());
  // And again: nothing of the first is left.
  job.StartAndRunRing();
  job.Complete();
  while (job.Advance() > 0) {
  }
  CHECK(job.Completed(1) == 2);
}

TEST_CASE(
    "JobCommunicator: waits for a rank that stops in the middle of copying, and says for which") {
  PlayedJob job;
  StagingProgress progress{};
  CHECK(job.communicator->MembersWithout("t") == std::vector<int>{0, 1});
  job.Submit(&progress);
  CHECK(job.communicator->MembersWithout("t") == std::vector<int>{1});
  job.Advance();
  REQUIRE(job.communicator->OnMessage(Execute{job.operations++, {"t"}}, Clock::now()).ok());
  job.Advance();
  REQUIRE(job.wire->posted.size() == 1);
  BufferStages& stages = *job.wire->posted.back().stages;
  progress.source = AllStagingPieces(kBytes) / 2;
  CHECK(stages.Input(0, kChunk) != nullptr);
  CHECK(stages.Input(kBytes - kChunk, kBytes) == nullptr);
  CHECK(job.communicator->MembersWithout("t") == std::vector<int>{1});
  progress.source = AllStagingPieces(kBytes);
  CHECK(job.communicator->MembersWithout("t").empty());
  job.wire->RunRing(job.wire->posted.back());
  job.Complete();
  while (job.Advance() > 0) {
  }
  CHECK(job.Completed(1) == 1);
}

TEST_CASE("JobCommunicator: with nothing else to do the engine copies before the ring has ended") {
  PlayedJob job;
  CHECK_FALSE(job.communicator->CopyPiece());
  job.StartAndRunRing();
  while (job.communicator->CopyPiece()) {
  }
  CHECK(job.HasResults(1));
  CHECK(job.Completed(0) == 0);
  job.Complete();
  CHECK(job.Advance() > 0);
  CHECK(job.Completed(0) == 1);
}

TEST_CASE("JobCommunicator: nothing is written to ranks that have heard of a failure") {
  // Before the ring has ended, and after.
  const bool landing = GENERATE(false, true);
  PlayedJob job;
  job.StartAndRunRing();
  while (job.reducers.claimed() < 2) job.reducers.Step();
  if (landing) {
    job.Complete();
    CHECK(job.Advance() > 0);
  }
  job.communicator->Fail(absl::AbortedError("rank 1 was killed"));
  CHECK(job.wire->aborted);
  // What a reducer is amid, its ranks must not take for theirs yet.
  CHECK(job.Completed(0) == 0);
  CHECK_FALSE(job.communicator->CopyPiece());
  job.reducers.FinishOne();
  CHECK(job.Advance() == 0);
  CHECK(job.Completed(0) == 0);
  CHECK_FALSE(job.communicator->Quiet());
  const int wakes = job.reducers.wakes;
  job.reducers.FinishOne();
  CHECK(job.reducers.wakes == wakes + 1);
  job.Advance();
  for (std::size_t m = 0; m < kRanks; ++m) {
    CHECK(job.Completed(m) == 1);
    CHECK(job.Failed(m) == 1);
  }
  // They have their memory back: it stays as they leave it.
  for (float* const arena : job.arenas) std::fill_n(arena, kBytes / 4, 7.0F);
  for (int step = 0; step < 100; ++step) {
    job.reducers.Step();
    job.Advance();
  }
  for (const float* const arena : job.arenas) {
    CHECK(std::all_of(arena, arena + kBytes / 4, [](float value) { return value == 7.0F; }));
  }
  // The backend's own end is waited for, unless it has come.
  CHECK(job.communicator->Quiet() == landing);
  if (!landing) job.Complete(CollectiveOutcome::kAborted);
  job.Advance();
  CHECK(job.communicator->Quiet());
  // Who submits now hears at once.
  job.Submit();
  CHECK(job.Failed(0) == 2);
}

TEST_CASE("JobCommunicator: a dead rank's arena stays while a reducer writes to it") {
  PlayedJob job;
  job.StartAndRunRing();
  while (job.reducers.claimed() < 1) job.reducers.Step();
  job.Complete();
  while (job.Advance() > 0) {
  }
  // Its session has ended; the communicator alone holds it now, and the job must hold the communicator.
  CHECK(job.sessions[1].use_count() == 1);
  job.communicator->Fail(absl::AbortedError("rank 1 was killed"));
  CHECK_FALSE(job.communicator->Quiet());
  while (job.reducers.claimed() > 0) job.reducers.FinishOne();
  job.Advance();
  CHECK(job.communicator->Quiet());
  job.communicator.reset();
  CHECK(job.sessions[1].expired());
}

TEST_CASE("JobCommunicator: what one who left had submitted is not summed when the others come") {
  PlayedJob job;
  job.Submit();
  job.Advance();
  REQUIRE(job.communicator->Leave(1));
  CHECK(job.Failed(1) == 1);  // cancelled
  CHECK(job.Completed(0) == 0);
  CHECK(job.communicator->HasWithdrawn());
  // Its memory is its own again.
  std::fill_n(job.arenas[1], kBytes / 4, 7.0F);
  REQUIRE(job.communicator->OnMessage(Execute{job.operations++, {"t"}}, Clock::now()).ok());
  const auto advanced = job.communicator->Advance(Clock::now());
  REQUIRE_FALSE(advanced.ok());
  CHECK(job.wire->posted.empty());
  const std::string why(advanced.status().message());
  CHECK(why == "rank 1, pid 0 on node-a left job 'job' (shutdown) while tensor 't' was in flight");
  job.communicator->Fail(advanced.status());
  CHECK(job.Failed(0) == 1);
  CHECK(job.Completed(1) == 1);
  CHECK_FALSE(job.communicator->HasWithdrawn());
  // What it still submits ends at once.
  job.Submit();
  CHECK(job.Completed(1) == 2);
}

TEST_CASE(
    "JobCommunicator: one who leaves amid an operation gets his memory back before he hears it") {
  PlayedJob job;
  const bool landing = GENERATE(false, true);
  job.StartAndRunRing();
  while (job.reducers.claimed() < 1) job.reducers.Step();
  if (landing) {
    job.Complete();
    CHECK(job.Advance() > 0);
  }
  REQUIRE_FALSE(job.communicator->Leave(1));
  CHECK(job.Completed(1) == 0);
  job.communicator->Fail(absl::AbortedError("rank 1 left"));
  CHECK(job.wire->aborted);
  std::thread reducer([&job] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    while (job.reducers.claimed() > 0) job.reducers.FinishOne();
  });
  job.communicator->Settle();
  reducer.join();
  CHECK(job.Failed(0) == 1);
  CHECK(job.Failed(1) == 1);
  for (float* const arena : job.arenas) std::fill_n(arena, kBytes / 4, 7.0F);
  for (int step = 0; step < 100; ++step) {
    job.reducers.Step();
    job.Advance();
  }
  for (const float* const arena : job.arenas) {
    CHECK(std::all_of(arena, arena + kBytes / 4, [](float value) { return value == 7.0F; }));
  }
}

TEST_CASE("JobCommunicator: at the very end it waits for reducers and completes what was put off") {
  PlayedJob job;
  job.StartAndRunRing();
  while (job.reducers.claimed() < 1) job.reducers.Step();
  job.communicator->Fail(absl::AbortedError("ringd was stopped"));
  CHECK(job.Failed(0) == 0);
  std::thread reducer([&job] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    job.reducers.FinishOne();
  });
  job.communicator->Settle();
  reducer.join();
  CHECK(job.Failed(0) == 1);
  CHECK(job.Failed(1) == 1);
}

TEST_CASE("JobCommunicator: a list has so many submissions of each rank, the oldest, and says so") {
  PlayedJob job;
  constexpr int kTensors = 100;
  std::vector<std::unique_ptr<Registration>> registrations;
  const auto start = Clock::now();
  for (int t = 0; t < kTensors; ++t) {
    auto& registration = *registrations.emplace_back(std::make_unique<Registration>());
    registration.name = "many" + std::to_string(t);
    registration.meta.shape = {1};
    REQUIRE(job.communicator->Number(registration).ok());
    CheckedSubmission submission;
    submission.registration = &registration;
    // Later names have waited for longer.
    job.communicator->Submit(0, submission, start - std::chrono::seconds(t));
  }
  bool all = false;
  CHECK(job.communicator->Waiting(Clock::time_point::max(), kTensors, all).size() == kTensors);
  CHECK(all);
  const auto waiting = job.communicator->Waiting(Clock::time_point::max(), 10, all);
  CHECK_FALSE(all);
  REQUIRE(waiting.size() == 10);
  for (int i = 0; i < 10; ++i) {
    CHECK(waiting[static_cast<std::size_t>(i)].name == "many" + std::to_string(kTensors - 1 - i));
  }
  job.communicator->Fail(absl::AbortedError("the end"));
}

}  // namespace
}  // namespace ringd
