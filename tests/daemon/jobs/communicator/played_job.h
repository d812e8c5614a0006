// A node's part in a job over several nodes, whose results reducers copy. The test plays the
// backend, the other node and the reducers.
#ifndef RINGD_TESTS_DAEMON_JOBS_COMMUNICATOR_PLAYED_JOB_H_
#define RINGD_TESTS_DAEMON_JOBS_COMMUNICATOR_PLAYED_JOB_H_

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "backends/block_map.h"
#include "daemon/attach/session_factory.h"
#include "daemon/jobs/communicator/job_communicator.h"
#include "proto/base/unix_socket.h"
#include "tests/daemon/execution/helped_nodes.h"

namespace ringd {

inline constexpr std::size_t kBytes = std::size_t{2} << 20;
inline constexpr std::uint32_t kChunk = 128 * 1024;
inline constexpr std::size_t kRanks = 2;

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
  void Cancel(OperationId id) noexcept override { cancelled.push_back(id); }
  void Abort(absl::string_view) noexcept override { aborted = true; }
  absl::Status health() const override { return absl::OkStatus(); }
  NodeIndex lost_node() const noexcept override { return NodeIndex(-1); }
  CommunicatorStatistics Statistics() const override { return {}; }

  // What the ring would do with the operation, but for the wire: the other node's sums and results
  // are 1.
  void RunRing(const CollectiveRequest& request) {
    const BlockMap grid = BlockMap::Even(kBytes, 2, kChunk);
    const std::vector<float> message(kChunk / 4, 1.0F);
    const auto* bytes = reinterpret_cast<const std::byte*>(message.data());
    for (std::uint32_t chunk = 0; chunk < grid.ChunkCount(0); ++chunk) {
      const ByteRange own = grid.Chunk(0, chunk);
      const ByteRange other = grid.Chunk(1, chunk);
      REQUIRE(request.accessor->Input(own.begin, own.end) != nullptr);
      REQUIRE(request.accessor->AddLastInput(other.begin, other.end, bytes) != nullptr);
      request.accessor->OnResult(own.begin, own.end, bytes, false);
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
  std::vector<OperationId> cancelled;
  bool aborted = false;
};

class RecordingLink final : public CoordinatorLink {
 public:
  void Send(v1::NodeMessage message) override { sent.push_back(std::move(message)); }

  std::vector<v1::NodeMessage> sent;
};

// Two ranks of node 0 of two, with one tensor each at the beginning of their arenas.
struct PlayedJob {
  // `by_order`: on a communicator that matches by order; the tensor is the first operation there.
  // `trace` not null: on a communicator besides that of all ranks, whose times go there.
  explicit PlayedJob(bool by_order = false, OperationTrace* trace = nullptr) {
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
      REQUIRE(made->resources->MapMemory().ok());
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
    options.by_order = by_order;
    if (by_order || trace != nullptr) {
      options.number = 1;
      options.name = "tp";
      options.trace = trace;
      // The job has another member here, before them.
      for (std::size_t m = 0; m < held.size(); ++m) {
        options.positions.push_back(static_cast<int>(m) + 1);
      }
    }
    communicator = std::make_unique<JobCommunicator>(
        std::move(options), std::make_shared<const Membership>(std::move(membership)), held,
        std::move(played), &link);
    registration.name = "t";
    registration.meta.shape = {kBytes / 4};
    registration.bytes = kBytes;
    REQUIRE(communicator->Number(registration).ok() != by_order);
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

  // The ranks write into their memory, which is theirs again.
  void Overwrite() {
    for (float* const arena : arenas) std::fill_n(arena, kBytes / 4, kTheirs);
  }
  // Whatever is still to be done is done now; true if the ranks' memory is as they left it.
  bool LeavesAlone() {
    for (int step = 0; step < 100; ++step) {
      reducers.Step();
      Advance();
    }
    return std::all_of(arenas.begin(), arenas.end(), [](const float* arena) {
      return std::all_of(arena, arena + kBytes / 4, [](float value) { return value == kTheirs; });
    });
  }

  static constexpr float kTheirs = 7.0F;

  SteppedReducers reducers{SteppedReducers::Speed::kRandom, 1};
  RecordingLink link;
  PlayedCommunicator* wire = nullptr;
  std::vector<UniqueFd> own_ends;
  std::vector<std::weak_ptr<Session>> sessions;
  std::vector<float*> arenas;
  Registration registration;
  std::unique_ptr<JobCommunicator> communicator;
  std::uint64_t submissions = 0;
  std::uint32_t operations = 0;
};

}  // namespace ringd

#endif  // RINGD_TESTS_DAEMON_JOBS_COMMUNICATOR_PLAYED_JOB_H_
