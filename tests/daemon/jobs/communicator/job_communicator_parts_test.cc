// Reduce-scatter and all-gather of uneven parts from end to end: ranks of two nodes submit, a real
// backend is between them, and each rank has what is its when it hears of the end.
#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "daemon/attach/session_factory.h"
#include "daemon/jobs/communicator/job_communicator.h"
#include "proto/base/unix_socket.h"
#include "proto/operations/operation_traits.h"
#include "tests/backends/backend_world.h"

namespace ringd {
namespace {

constexpr int kNodes = 2;
constexpr int kRanksHere = 2;
constexpr int kRanks = kNodes * kRanksHere;
constexpr std::size_t kArenaBytes = std::size_t{8} << 20;
constexpr std::size_t kDestinationAt = kArenaBytes / 2 / sizeof(float);

class SilentLink final : public CoordinatorLink {
 public:
  void Send(v1::NodeMessage) override {}
};

// The ranks take turns over the nodes: so a node's parts do not lie together in the tensor.
int RankAt(int node, int member) { return member * kNodes + node; }

std::shared_ptr<const Membership> MembershipOf(int self) {
  auto membership = std::make_shared<Membership>();
  membership->self = NodeIndex(self);
  for (int node = 0; node < kNodes; ++node) {
    MemberNode entry;
    entry.name = "node-" + std::to_string(node);
    for (int member = 0; member < kRanksHere; ++member) {
      MemberRank rank;
      rank.rank = Rank(RankAt(node, member));
      rank.local_rank = LocalRank(member);
      entry.ranks.push_back(rank);
    }
    membership->nodes.push_back(std::move(entry));
  }
  return membership;
}

// One node's ringd, as far as its ranks' job is concerned.
struct PartedNode {
  PartedNode(int self, std::unique_ptr<Communicator> wire) {
    std::vector<std::shared_ptr<Session>> held;
    for (int member = 0; member < kRanksHere; ++member) {
      auto ends = UnixSocketPair();
      REQUIRE(ends.ok());
      PeerCredentials peer;
      peer.pid = 1;
      auto made = MakeSession(SessionId(static_cast<std::uint64_t>(1 + member)), {kArenaBytes, 16},
                              peer, ends->second.get());
      REQUIRE(made.ok());
      made->resources->lifeline = std::move(ends->second);
      REQUIRE(made->resources->MapMemory().ok());
      own_ends.push_back(std::move(ends->first));
      arenas.push_back(reinterpret_cast<float*>(made->resources->arena.data()));
      held.push_back(std::make_shared<Session>(std::move(made->resources)));
      sessions.push_back(held.back());
    }
    JobCommunicator::Options options;
    options.job_id = "job";
    communicator = std::make_unique<JobCommunicator>(std::move(options), MembershipOf(self),
                                                     std::move(held), std::move(wire), &link);
  }

  SilentLink link;
  std::vector<UniqueFd> own_ends;
  std::vector<std::weak_ptr<Session>> sessions;
  std::vector<float*> arenas;
  std::unique_ptr<JobCommunicator> communicator;
};

Registration RegistrationOf(CollectiveKind kind, const std::vector<std::int64_t>& parts) {
  Registration registration;
  registration.name = "t";
  registration.meta.kind = kind;
  registration.meta.op = ReduceOp::kAverage;
  registration.meta.shape = {std::accumulate(parts.begin(), parts.end(), std::int64_t{0})};
  registration.meta.parts = parts;
  registration.element_count = ElementCount(registration.meta);
  registration.bytes = ByteCount(registration.meta);
  return registration;
}

float InputOf(int rank, std::size_t i) { return static_cast<float>(rank * 4 + i % 7 * 4); }

struct PartedJob {
  PartedJob(BackendKind backend, CollectiveKind kind, const std::vector<std::int64_t>& rank_parts)
      : parts(rank_parts), traits(TraitsOf(kind)), world(backend, kNodes) {
    for (int node = 0; node < kNodes; ++node) {
      nodes.push_back(std::make_unique<PartedNode>(
          node, std::move(world.communicators[static_cast<std::size_t>(node)])));
      registrations.push_back(RegistrationOf(kind, parts));
    }
  }

  std::size_t BeginOf(int rank) const {
    return static_cast<std::size_t>(
        std::accumulate(parts.begin(), parts.begin() + rank, std::int64_t{0}));
  }
  std::size_t SizeOf(int rank) const {
    return static_cast<std::size_t>(parts[static_cast<std::size_t>(rank)]);
  }

  void SubmitAll() {
    for (int node = 0; node < kNodes; ++node) {
      Registration& registration = registrations[static_cast<std::size_t>(node)];
      PartedNode& here = *nodes[static_cast<std::size_t>(node)];
      REQUIRE(here.communicator->Number(registration).ok());
      for (int member = 0; member < kRanksHere; ++member) {
        const int rank = RankAt(node, member);
        float* const arena = here.arenas[static_cast<std::size_t>(member)];
        const bool own = traits.input == Extent::kOwnPart;
        const std::size_t begin = own ? BeginOf(rank) : 0;
        const std::size_t count = own ? SizeOf(rank) : registration.element_count;
        for (std::size_t i = 0; i < count; ++i) arena[i] = InputOf(rank, begin + i);
        std::fill_n(arena + kDestinationAt, registration.element_count + 1, -1.0F);
        CheckedSubmission submission;
        submission.registration = &registration;
        submission.source = reinterpret_cast<std::byte*>(arena);
        submission.destination = reinterpret_cast<std::byte*>(arena + kDestinationAt);
        here.communicator->Submit(member, submission, Clock::now());
      }
    }
  }
  // All nodes are told to start; then until all ranks have heard of the end.
  bool Run() {
    for (auto& node : nodes) {
      if (!node->communicator->Advance(Clock::now()).ok()) return false;
      if (!node->communicator->OnMessage(Execute{0, {"t"}}, Clock::now()).ok()) return false;
    }
    return world.RunUntil([&] {
      std::uint64_t completed = 0;
      for (auto& node : nodes) {
        if (!node->communicator->Advance(Clock::now()).ok()) return false;
        for (const auto& session : node->sessions) completed += session.lock()->completed();
      }
      return completed == kRanks;
    });
  }
  float ExpectedAt(std::size_t i) const {
    float sum = 0;
    for (int rank = 0; rank < kRanks; ++rank) {
      if (traits.combines) sum += InputOf(rank, i) / kRanks;
      if (!traits.combines && BeginOf(rank) <= i && i < BeginOf(rank) + SizeOf(rank)) {
        sum = InputOf(rank, i);
      }
    }
    return sum;
  }
  // The first element of a rank's result that is wrong; or one behind it, that nobody may touch.
  std::string WrongAt(int node, int member) const {
    const int rank = RankAt(node, member);
    const bool own = traits.output == Extent::kOwnPart;
    const std::size_t begin = own ? BeginOf(rank) : 0;
    const std::size_t count = own ? SizeOf(rank) : registrations[0].element_count;
    const float* const result =
        nodes[static_cast<std::size_t>(node)]->arenas[static_cast<std::size_t>(member)] +
        kDestinationAt;
    for (std::size_t i = 0; i < count; ++i) {
      if (result[i] != ExpectedAt(begin + i)) return "element " + std::to_string(i);
    }
    return result[count] == -1.0F ? "" : "beyond the end";
  }

  const std::vector<std::int64_t> parts;
  const OperationTraits& traits;
  BackendWorld world;
  std::vector<std::unique_ptr<PartedNode>> nodes;
  std::vector<Registration> registrations;
};

TEST_CASE("JobCommunicator: each of two nodes' ranks gets its parts, over any backend") {
  const auto backend = GENERATE(BackendKind::kLoopback, BackendKind::kTcp, BackendKind::kUcx);
  const auto kind = GENERATE(CollectiveKind::kReduceScatter, CollectiveKind::kAllGather);
  const auto parts =
      GENERATE(std::vector<std::int64_t>{1000, 1000, 1000, 1000},
               std::vector<std::int64_t>{1, 70'001, 300'000, 17},
               std::vector<std::int64_t>{5, 0, 0, 90'000}, std::vector<std::int64_t>{0, 9, 0, 0});
  INFO(NameOf(backend) << ", " << Name(kind) << ", first part of " << parts[0]);
  PartedJob job(backend, kind, parts);
  job.SubmitAll();
  REQUIRE(job.Run());
  for (int node = 0; node < kNodes; ++node) {
    for (int member = 0; member < kRanksHere; ++member) {
      INFO("rank " << RankAt(node, member));
      const auto session = job.nodes[static_cast<std::size_t>(node)]
                               ->sessions[static_cast<std::size_t>(member)]
                               .lock();
      CHECK(session->failed() == 0);
      CHECK(job.WrongAt(node, member) == "");
    }
  }
}

TEST_CASE("JobCommunicator: parts of another number of ranks, or of another whole, get no number") {
  PartedJob job(BackendKind::kLoopback, CollectiveKind::kAllGather, {1, 2, 3, 4});
  JobCommunicator& communicator = *job.nodes[0]->communicator;
  Registration registration = RegistrationOf(CollectiveKind::kAllGather, {1, 2, 3});
  CHECK(communicator.Number(registration).code() == absl::StatusCode::kInvalidArgument);
  registration = RegistrationOf(CollectiveKind::kAllGather, {1, 2, 3, 4});
  registration.meta.shape = {11};
  CHECK(communicator.Number(registration).code() == absl::StatusCode::kInvalidArgument);
  registration = RegistrationOf(CollectiveKind::kAllReduce, {1, 2, 3, 4});
  CHECK(communicator.Number(registration).code() == absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace ringd
