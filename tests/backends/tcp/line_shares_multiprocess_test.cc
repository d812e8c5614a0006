// Jobs in processes of their own on one line of a known speed, as engines are. Needs root.
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <sstream>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backends/tcp/tcp_transport.h"
#include "tests/backends/backend_world.h"
#include "tests/backends/tcp/line_world.h"
#include "tests/backends/tcp/loopback_sockets.h"

namespace ringd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr double kLineBytesPerSecond = 200e6 / 8;

// This process, and those it begets, on a loopback interface of that speed. False: not allowed to.
bool EnterSlowNetwork() {
  static const bool entered = [] {
    if (::geteuid() != 0 || ::unshare(CLONE_NEWNET) != 0) return false;
    return std::system("ip link set lo up") == 0 &&
           std::system("tc qdisc add dev lo root tbf rate 200mbit burst 131072 latency 50ms") == 0;
  }();
  return entered;
}

// The two nodes of a job, both in one process, that always have bulk to send. Each node's engines
// have shares of their own.
class BusyJob {
 public:
  explicit BusyJob(std::vector<LineWorld>& worlds, std::size_t slot) : nodes_(2) {
    CommunicatorSpec spec;
    spec.wire_id = 1;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      nodes_[i].shares = worlds[i].Shares(slot);
      TransportOptions options;
      options.line_shares = nodes_[i].shares.get();
      auto made = CreateTcpTransport(options, std::make_unique<LoopbackSockets>());
      if (!made.ok()) ::_exit(1);
      nodes_[i].transport = *std::move(made);
      spec.addresses.push_back(nodes_[i].transport->LocalAddress());
      spec.node_names.push_back(absl::StrCat("node-", i));
    }
    for (Node& node : nodes_) {
      spec.self = NodeIndex(static_cast<std::int32_t>(&node - nodes_.data()));
      auto made = node.transport->CreateCommunicator(spec);
      if (!made.ok()) ::_exit(2);
      node.communicator = *std::move(made);
      for (auto& buffer : node.buffers) buffer.assign(kElements, 1.0F);
    }
  }

  // For ever. `bytes` grows.
  void Run(std::atomic<std::uint64_t>& bytes) {
    for (;;) {
      for (Node& node : nodes_) Advance(node);
      bytes = std::min(nodes_[0].done, nodes_[1].done) * kElements * sizeof(float);
      Sleep();
    }
  }

 private:
  static constexpr std::size_t kElements = 128 * 1024;
  static constexpr std::size_t kInFlight = 8;

  struct Node {
    std::unique_ptr<LineShares> shares;
    std::unique_ptr<Transport> transport;
    std::unique_ptr<Communicator> communicator;
    std::size_t posted = 0;
    std::size_t done = 0;
    std::vector<float> buffers[kInFlight];
  };

  static void Advance(Node& node) {
    while (node.posted < node.done + kInFlight) {
      const auto sequence = static_cast<std::uint32_t>(node.posted++);
      float* const buffer = node.buffers[sequence % kInFlight].data();
      if (!node.communicator->TryPost(
              AllReduce({1, sequence}, DataType::kFloat32, ReduceOp::kMax, buffer, kElements))) {
        ::_exit(3);
      }
    }
    node.transport->Progress();
    Completion completions[kInFlight];
    node.done += node.communicator->Poll(completions);
  }
  void Sleep() {
    pollfd events[2];
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (!nodes_[i].transport->Arm()) return;
      events[i] = {nodes_[i].transport->event_fd(), POLLIN, 0};
    }
    ::poll(events, 2, 100);
  }

  std::vector<Node> nodes_;
};

// Processes with a slot each.
class Processes {
 public:
  explicit Processes(const std::vector<std::uint32_t>& weights) {
    for (LineWorld& world : worlds) {
      for (std::size_t slot = 0; slot < weights.size(); ++slot) {
        world.AddEngine(slot, weights[slot]);
      }
    }
    void* const memory =
        ::mmap(nullptr, sizeof(Counts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    counts_ = static_cast<Counts*>(memory);
    pids_.resize(weights.size());
  }
  ~Processes() {
    for (std::size_t slot = 0; slot < pids_.size(); ++slot) Kill(slot);
    ::munmap(counts_, sizeof(Counts));
  }

  void Start(std::size_t slot, const std::function<void()>& body) {
    pids_[slot] = ::fork();
    REQUIRE(pids_[slot] >= 0);
    if (pids_[slot] > 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    body();
    ::_exit(0);
  }
  void StartJob(std::size_t slot) {
    Start(slot, [this, slot] { BusyJob(worlds, slot).Run(counts_->bytes[slot]); });
  }
  void Signal(std::size_t slot, int signal) { ::kill(pids_[slot], signal); }
  void Kill(std::size_t slot) {
    if (pids_[slot] <= 0) return;
    Signal(slot, SIGKILL);
    ::waitpid(pids_[slot], nullptr, 0);
    pids_[slot] = 0;
  }

  // What each moves in this time.
  std::vector<double> Measure(milliseconds time) {
    std::vector<double> bytes;
    for (std::size_t slot = 0; slot < pids_.size(); ++slot) {
      bytes.push_back(-static_cast<double>(counts_->bytes[slot]));
    }
    std::this_thread::sleep_for(time);
    for (std::size_t slot = 0; slot < pids_.size(); ++slot) {
      bytes[slot] += static_cast<double>(counts_->bytes[slot]);
    }
    return bytes;
  }

  std::vector<LineWorld> worlds = std::vector<LineWorld>(2);  // by node

 private:
  struct Counts {
    std::atomic<std::uint64_t> bytes[8];
  };
  Counts* counts_ = nullptr;
  std::vector<pid_t> pids_;
};

// Each node sends as much as its job reduces, and both nodes share the interface.
double PartOfLine(double bytes, seconds time) {
  return 2 * bytes / (kLineBytesPerSecond * static_cast<double>(time.count()));
}

// A machine whose processors are others' for a while may spoil a window: one must be right.
constexpr int kWindows = 4;

void CheckThreeToOne(Processes& jobs) {
  std::ostringstream seen;
  for (int i = 0; i < kWindows; ++i) {
    const std::vector<double> bytes = jobs.Measure(seconds(4));
    seen << bytes[0] << " and " << bytes[1] << " bytes; ";
    const double ratio = bytes[0] / bytes[1];
    if (ratio > 2.4 && ratio < 3.6 && PartOfLine(bytes[0] + bytes[1], seconds(4)) > 0.8) return;
  }
  FAIL(seen.str());
}

// The second has it for itself.
void CheckHasAll(Processes& jobs) {
  double most = 0;
  for (int i = 0; i < kWindows && most <= 0.8; ++i) {
    most = std::max(most, PartOfLine(jobs.Measure(seconds(2))[1], seconds(2)));
  }
  CHECK(most > 0.8);
}

TEST_CASE("LineShares: jobs of weights 3 and 1, in a process each, get about 3 to 1 of a line") {
  if (!EnterSlowNetwork()) {
    REQUIRE(::geteuid() != 0);
    WARN("skipped: needs root");
    return;
  }
  Processes jobs({3, 1});
  jobs.StartJob(0);
  jobs.StartJob(1);
  std::this_thread::sleep_for(seconds(1));
  CheckThreeToOne(jobs);

  // Who is stopped costs the other its patience, and has its share when it goes on.
  jobs.Signal(0, SIGSTOP);
  std::this_thread::sleep_for(milliseconds(500));
  CheckHasAll(jobs);
  jobs.Signal(0, SIGCONT);
  std::this_thread::sleep_for(seconds(1));
  CheckThreeToOne(jobs);

  // Who is killed leaves all to the other, also before the supervisor has noticed.
  jobs.Kill(0);
  std::this_thread::sleep_for(milliseconds(500));
  CheckHasAll(jobs);
}

TEST_CASE("LineShares: an engine that lies about what it has had leaves the others their floor") {
  if (!EnterSlowNetwork()) {
    REQUIRE(::geteuid() != 0);
    WARN("skipped: needs root");
    return;
  }
  Processes jobs({1, 1});
  jobs.StartJob(0);
  jobs.Start(1, [&jobs] {
    const std::size_t line = LineOf("127.0.0.1");
    for (std::uint64_t lie = 0;; ++lie) {
      for (LineWorld& world : jobs.worlds) {
        world.tags().wanting[line].set.Add(1);
        world.tags().tags[line].of[1] = lie % 1000;
      }
      std::this_thread::sleep_for(milliseconds(1));
    }
  });
  std::this_thread::sleep_for(seconds(1));
  const double part = PartOfLine(jobs.Measure(seconds(4))[0], seconds(4));
  // A quarter of a half, in time, at each node; nobody else sends.
  CHECK(part > 0.05);
}

}  // namespace
}  // namespace ringd
