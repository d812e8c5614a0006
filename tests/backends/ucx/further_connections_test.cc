// A further connection to a neighbour carries messages once there is one. Until then, and where there will be none,
// everything goes over the first.
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/backends/backend_world.h"
#include "tests/backends/ucx/two_nodes.h"

namespace ringd {
namespace {

using Catch::Matchers::Contains;

// This process's sockets that take connections.
std::vector<int> Listeners() {
  std::vector<int> found;
  const int end = static_cast<int>(::sysconf(_SC_OPEN_MAX));
  for (int fd = 0; fd < end; ++fd) {
    int listens = 0;
    socklen_t length = sizeof(listens);
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) == 0 && listens != 0) {
      found.push_back(fd);
    }
  }
  return found;
}

// From now on whoever connects is refused; what is connected stays so.
void RefuseConnections() {
  const std::vector<int> listeners = Listeners();
  REQUIRE_FALSE(listeners.empty());
  for (const int fd : listeners) REQUIRE(::shutdown(fd, SHUT_RD) == 0);
}

// Two communicators between two nodes, so that both want the lines.
struct TwoJobs {
  explicit TwoJobs(BackendWorld& nodes) : world(nodes) {}

  void Begin() {
    for (int node = 0; node < 2; ++node) {
      auto made = world.transport(node).CreateCommunicator(world.SpecOf(node, 77));
      REQUIRE(made.ok());
      second.push_back(*std::move(made));
    }
  }

  // One all-reduce of several messages in each.
  void AddInBoth(std::uint32_t sequence) {
    std::vector<std::vector<float>> buffers(4, std::vector<float>(500'000, 1.0F));
    for (int node = 0; node < 2; ++node) {
      const auto at = static_cast<std::size_t>(node);
      for (const bool first : {true, false}) {
        auto& buffer = buffers[2 * at + (first ? 0 : 1)];
        Communicator& communicator = first ? world.at(node) : *second[at];
        REQUIRE(communicator.TryPost(AllReduce({1, sequence}, DataType::kFloat32, ReduceOp::kSum,
                                               buffer.data(), buffer.size())));
      }
    }
    std::vector<Completion> completions;
    REQUIRE(world.RunUntil([&] {
      for (auto& communicator : second) {
        Completion out[4];
        const std::size_t count = communicator->Poll(out);
        completions.insert(completions.end(), out, out + count);
      }
      return completions.size() == 2 && world.completions[0].size() == sequence + 1 &&
             world.completions[1].size() == sequence + 1;
    }));
    for (const Completion& completion : completions)
      CHECK(completion.outcome == CollectiveOutcome::kDone);
    for (int node = 0; node < 2; ++node) {
      CHECK(world.Find(node, {1, sequence})->outcome == CollectiveOutcome::kDone);
    }
    for (const auto& buffer : buffers) {
      CHECK(buffer.front() == 2.0F);
      CHECK(buffer.back() == 2.0F);
    }
  }

  NeighbourLine Line() { return world.at(0).Statistics().neighbours.at(0).line; }

  BackendWorld& world;
  std::vector<std::unique_ptr<Communicator>> second;
};

TEST_CASE("further connections: jobs that share a line have one for what is urgent") {
  BackendWorld world(BackendKind::kUcx, 2);
  AddOnBothNodes(world, 0, 500'000);
  TwoJobs jobs(world);
  jobs.Begin();
  for (std::uint32_t sequence = 1; sequence < 20; ++sequence) jobs.AddInBoth(sequence);
  CHECK(jobs.Line().connections == 2);
  CHECK(jobs.Line().bulk_connections == 1);
}

TEST_CASE("further connections: one that the neighbour refuses harms nobody") {
  BackendWorld world(BackendKind::kUcx, 2);
  AddOnBothNodes(world, 0, 500'000);
  RefuseConnections();
  TwoJobs jobs(world);
  jobs.Begin();
  for (std::uint32_t sequence = 1; sequence < 20; ++sequence) jobs.AddInBoth(sequence);
  CHECK(jobs.Line().connections == 1);
  CHECK_THAT(jobs.Line().reason, Contains("refused"));
}

}  // namespace
}  // namespace ringd
