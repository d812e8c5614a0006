// A further connection to a neighbour carries messages once there is one. Until then, and where
// there will be none, everything goes over the first.
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "proto/base/unique_fd.h"
#include "tests/backends/backend_world.h"
#include "tests/backends/two_nodes.h"

namespace ringd {
namespace {

using Catch::Matchers::Contains;

// A port of this host that refuses whoever connects: bound, so that nobody else listens there, and
// not listening itself.
class RefusingPort {
 public:
  RefusingPort() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    socklen_t length = sizeof(address);
    REQUIRE(::bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), length) == 0);
    REQUIRE(::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0);
    instead = address.sin_port;
  }
  RefusingPort(const RefusingPort&) = delete;
  RefusingPort& operator=(const RefusingPort&) = delete;
  ~RefusingPort() { instead = 0; }

  // In network order; 0: there is none. Read by UCX's own thread, too.
  static std::atomic<in_port_t> instead;
  static std::atomic<int> taken;  // connections that went there

 private:
  UniqueFd socket_;
};

std::atomic<in_port_t> RefusingPort::instead{0};
std::atomic<int> RefusingPort::taken{0};

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
  const RefusingPort port;
  TwoJobs jobs(world);
  jobs.Begin();
  for (std::uint32_t sequence = 1; sequence < 20; ++sequence) jobs.AddInBoth(sequence);
  CHECK(RefusingPort::taken > 0);
  CHECK(jobs.Line().connections == 1);
  CHECK_THAT(jobs.Line().reason, Contains("refused"));
}

}  // namespace

// UCX's connect(), in place of the C library's. While there is a refusing port, connections go
// there: the kernel refuses them as a neighbour's would, and UCX's own listener stays as it is. UCX
// 1.13 may abort when that is shut down.
extern "C" int connect(int fd, const sockaddr* address, socklen_t length) {
  sockaddr_in elsewhere{};
  const in_port_t port = RefusingPort::instead;
  if (port != 0 && address->sa_family == AF_INET && length >= sizeof(elsewhere)) {
    std::memcpy(&elsewhere, address, sizeof(elsewhere));
    elsewhere.sin_port = port;
    ++RefusingPort::taken;
    address = reinterpret_cast<const sockaddr*>(&elsewhere);
  }
  return static_cast<int>(::syscall(SYS_connect, fd, address, length));
}

}  // namespace ringd
