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
#include <thread>
#include <vector>

#include "tests/backends/backend_world.h"
#include "tests/backends/tcp/line_world.h"

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

// A job of two nodes, both in one process, that always has bulk to send.
class BusyJob {
 public:
  explicit BusyJob(LineShares& shares) : world_(BackendKind::kTcp, 2, {}, Options(shares)) {
    for (auto& buffer : buffers_) buffer.assign(kElements, 1.0F);
  }

  // For ever. `bytes` grows.
  void Run(std::atomic<std::uint64_t>& bytes) {
    for (;;) {
      Refill();
      Sleep();
      world_.Step();
      const std::size_t done = std::min(world_.completions[0].size(), world_.completions[1].size());
      bytes = done * kElements * sizeof(float);
    }
  }

 private:
  static constexpr std::size_t kElements = 128 * 1024;
  static constexpr std::size_t kInFlight = 8;

  static TransportOptions Options(LineShares& shares) {
    TransportOptions options;
    options.line_shares = &shares;
    return options;
  }
  void Refill() {
    for (int node = 0; node < 2; ++node) {
      const auto index = static_cast<std::size_t>(node);
      while (posted_[index] < world_.completions[index].size() + kInFlight) {
        const auto sequence = static_cast<std::uint32_t>(posted_[index]++);
        float* const buffer = buffers_[index * kInFlight + sequence % kInFlight].data();
        if (!world_.at(node).TryPost(
                AllReduce({1, sequence}, DataType::kFloat32, ReduceOp::kMax, buffer, kElements))) {
          ::_exit(3);
        }
      }
    }
  }
  void Sleep() {
    if (!world_.transport(0).Arm() || !world_.transport(1).Arm()) return;
    pollfd events[2] = {{world_.transport(0).event_fd(), POLLIN, 0},
                        {world_.transport(1).event_fd(), POLLIN, 0}};
    ::poll(events, 2, 100);
  }

  BackendWorld world_;
  std::size_t posted_[2] = {0, 0};
  std::vector<float> buffers_[2 * kInFlight];
};

// Processes with a slot each.
class Processes {
 public:
  explicit Processes(const std::vector<std::uint32_t>& weights) {
    for (std::size_t slot = 0; slot < weights.size(); ++slot) world.AddEngine(slot, weights[slot]);
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
    Start(slot, [this, slot] {
      const auto shares = world.Shares(slot);
      BusyJob(*shares).Run(counts_->bytes[slot]);
    });
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

  LineWorld world;

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

void CheckThreeToOne(Processes& jobs) {
  const std::vector<double> bytes = jobs.Measure(seconds(4));
  INFO(bytes[0] << " and " << bytes[1] << " bytes");
  CHECK(bytes[0] / bytes[1] > 2.4);
  CHECK(bytes[0] / bytes[1] < 3.6);
  CHECK(PartOfLine(bytes[0] + bytes[1], seconds(4)) > 0.8);
}

TEST_CASE("LineShares: jobs of weights 3 and 1, in a process each, get about 3 to 1 of a line") {
  if (!EnterSlowNetwork()) {
    WARN("needs root");
    return;
  }
  Processes jobs({3, 1});
  jobs.StartJob(0);
  jobs.StartJob(1);
  std::this_thread::sleep_for(seconds(1));
  CheckThreeToOne(jobs);

  // Who is stopped costs the other its patience, and has its share when it goes on.
  jobs.Signal(0, SIGSTOP);
  std::this_thread::sleep_for(milliseconds(300));
  CHECK(PartOfLine(jobs.Measure(seconds(2))[1], seconds(2)) > 0.8);
  jobs.Signal(0, SIGCONT);
  std::this_thread::sleep_for(seconds(1));
  CheckThreeToOne(jobs);

  // Who is killed leaves all to the other, also before the supervisor has noticed.
  jobs.Kill(0);
  std::this_thread::sleep_for(milliseconds(300));
  CHECK(PartOfLine(jobs.Measure(seconds(2))[1], seconds(2)) > 0.8);
}

TEST_CASE("LineShares: an engine that lies about what it has had leaves the others their floor") {
  if (!EnterSlowNetwork()) {
    WARN("needs root");
    return;
  }
  Processes jobs({1, 1});
  jobs.StartJob(0);
  jobs.Start(1, [&jobs] {
    auto& tags = jobs.world.tags();
    const std::size_t line = LineOf("127.0.0.1");
    for (std::uint64_t lie = 0;; ++lie) {
      tags.wanting[line].set.Add(1);
      tags.tags[line].of[1] = lie % 1000;
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
