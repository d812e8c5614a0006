// Times collectives of one backend alone, one process for each node, without a daemon.
//
// The processes find each other through files in a folder that all can see, so they may run in
// network namespaces of one machine.
#include <poll.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "backends/tcp/tcp_transport.h"
#include "backends/ucx/ucx_transport.h"
#include "proto/base/clock.h"
#include "tests/backends/tcp/loopback_sockets.h"

namespace ringd {
namespace {

using std::chrono::duration;
using std::chrono::milliseconds;
using std::chrono::seconds;

struct Options {
  std::string folder;
  std::string backend = "ucx";
  int node = 0;
  int node_count = 2;
  std::uint64_t bytes = 64 << 20;
  int iterations = 10;
  int in_flight = 1;
  int spins = 200;
  double gbit_per_second = 0;
  std::string kind = "allreduce";
  std::vector<std::uint32_t> weights;  // of jobs that share the line
  TransportOptions transport;
  AlgorithmOptions algorithms;
};

// Waits for everybody's address.
std::vector<std::string> ExchangeAddresses(const Options& options, const std::string& own) {
  const auto path = [&](int node) { return options.folder + "/node-" + std::to_string(node); };
  const std::string draft = path(options.node) + ".draft";
  std::ofstream(draft, std::ios::binary) << own;
  std::rename(draft.c_str(), path(options.node).c_str());
  std::vector<std::string> addresses;
  const Clock::time_point deadline = Clock::now() + seconds(20);
  for (int node = 0; node < options.node_count; ++node) {
    for (;;) {
      std::ifstream file(path(node), std::ios::binary);
      if (file) {
        addresses.emplace_back(std::istreambuf_iterator<char>(file),
                               std::istreambuf_iterator<char>());
        break;
      }
      if (Clock::now() > deadline) {
        std::fprintf(stderr, "node %d never came\n", node);
        std::exit(1);
      }
      std::this_thread::sleep_for(milliseconds(2));
    }
  }
  return addresses;
}

// Runs the transport as the daemon does: busy for a little while, then asleep.
class Runner {
 public:
  Runner(Transport& transport, Communicator& communicator, int spins)
      : transport_(transport), communicator_(communicator), spins_(spins) {}

  // Until `count` more operations have completed.
  void Complete(int count) {
    int idle = 0;
    while (count > 0) {
      const std::size_t work = transport_.Progress();
      Completion done[16];
      const std::size_t got = communicator_.Poll(done);
      for (std::size_t i = 0; i < got; ++i) {
        if (done[i].outcome != CollectiveOutcome::kDone) {
          std::fprintf(stderr, "operation failed: %s\n", communicator_.health().ToString().c_str());
          std::exit(1);
        }
      }
      count -= static_cast<int>(got);
      idle = work + got > 0 ? 0 : idle + 1;
      if (idle > spins_ && transport_.Arm()) {
        pollfd event{transport_.event_fd(), POLLIN, 0};
        ::poll(&event, 1, 1000);
        idle = 0;
      }
    }
  }

 private:
  Transport& transport_;
  Communicator& communicator_;
  const int spins_;
};

// Jobs side by side, each with all-reduces in flight all the time, until the first one has had all
// its iterations: what has each of them sent by then?
int RunShares(const Options& options, Transport& transport, CommunicatorSpec spec) {
  std::vector<std::unique_ptr<Communicator>> jobs;
  for (const std::uint32_t weight : options.weights) {
    spec.wire_id = 100 + jobs.size();
    spec.share.weight = weight;
    auto made = transport.CreateCommunicator(spec);
    if (!made.ok()) return 1;
    jobs.push_back(*std::move(made));
  }
  // One for all: every value stays what it is.
  std::vector<float> buffer(options.bytes / 4, 1.0f);
  std::vector<std::uint32_t> posted(jobs.size(), 0);
  const auto post = [&](std::size_t job) {
    CollectiveRequest request;
    request.id = {0, posted[job]++};
    request.op = ReduceOp::kMax;
    request.element_count = buffer.size();
    request.buffer = reinterpret_cast<std::byte*>(buffer.data());
    return jobs[job]->TryPost(request);
  };
  for (std::size_t job = 0; job < jobs.size(); ++job) {
    for (int i = 0; i < options.in_flight; ++i) static_cast<void>(post(job));
  }
  const auto iterations = static_cast<std::uint32_t>(options.iterations);
  while (posted[0] <= iterations + static_cast<std::uint32_t>(options.in_flight)) {
    if (transport.Progress() == 0 && transport.Arm()) {
      pollfd event{transport.event_fd(), POLLIN, 0};
      ::poll(&event, 1, 1000);
    }
    for (std::size_t job = 0; job < jobs.size(); ++job) {
      Completion done[1];
      if (jobs[job]->Poll(done) == 1) static_cast<void>(post(job));
    }
  }
  for (std::size_t job = 0; options.node == 0 && job < jobs.size(); ++job) {
    std::printf(
        "weight %u: %.1f MiB sent\n", options.weights[job],
        static_cast<double>(jobs[job]->Statistics().neighbours.at(0).bytes_sent) / (1 << 20));
  }
  for (const auto& job : jobs) job->Abort("the measurement is over");
  return 0;
}

int Run(const Options& options) {
  TransportOptions transport_options = options.transport;
  transport_options.log = [&options](const std::string& line) {
    std::fprintf(stderr, "node %d: %s\n", options.node, line.c_str());
  };
  auto transport = options.backend == "tcp"
                       ? CreateTcpTransport(transport_options, std::make_unique<LoopbackSockets>())
                       : CreateUcxTransport(transport_options);
  if (!transport.ok()) {
    std::fprintf(stderr, "%s\n", transport.status().ToString().c_str());
    return 1;
  }
  CommunicatorSpec spec;
  spec.wire_id = 1;
  spec.self = NodeIndex(options.node);
  spec.addresses = ExchangeAddresses(options, (*transport)->LocalAddress());
  for (int node = 0; node < options.node_count; ++node) {
    spec.node_names.push_back("node-" + std::to_string(node));
  }
  spec.algorithms = options.algorithms;
  if (!options.weights.empty()) return RunShares(options, **transport, spec);
  auto communicator = (*transport)->CreateCommunicator(spec);
  if (!communicator.ok()) {
    std::fprintf(stderr, "%s\n", communicator.status().ToString().c_str());
    return 1;
  }
  Runner runner(**transport, **communicator, options.spins);
  std::vector<std::vector<float>> buffers(static_cast<std::size_t>(options.in_flight),
                                          std::vector<float>(options.bytes / 4, 1.0f));
  std::uint32_t sequence = 0;
  const auto post = [&](std::size_t slot) {
    CollectiveRequest request;
    request.id = {0, sequence++};
    request.kind = options.kind == "broadcast" ? CollectiveKind::kBroadcast
                   : options.kind == "barrier" ? CollectiveKind::kBarrier
                                               : CollectiveKind::kAllReduce;
    request.op = ReduceOp::kMax;  // so that values stay what they are
    request.root = NodeIndex(0);
    request.element_count = buffers[slot].size();
    request.buffer = reinterpret_cast<std::byte*>(buffers[slot].data());
    while (!(*communicator)->TryPost(request)) runner.Complete(1);
  };
  std::vector<double> times;
  const int warm_up = std::max(2, options.iterations / 10);
  for (int i = -warm_up; i < options.iterations; ++i) {
    const Clock::time_point begin = Clock::now();
    for (std::size_t slot = 0; slot < buffers.size(); ++slot) post(slot);
    runner.Complete(options.in_flight);
    if (i >= 0) times.push_back(duration<double>(Clock::now() - begin).count() / options.in_flight);
  }
  std::sort(times.begin(), times.end());
  const double median = times[times.size() / 2];
  if (options.node == 0) {
    std::printf("%s %llu bytes, %d nodes: median %.1f us, best %.1f us", options.kind.c_str(),
                static_cast<unsigned long long>(options.bytes), options.node_count, median * 1e6,
                times.front() * 1e6);
    if (options.gbit_per_second > 0) {
      const double n = options.node_count;
      const double floor = static_cast<double>(options.bytes) * 2 * (n - 1) / n * 8 /
                           (options.gbit_per_second * 1e9);
      std::printf(", %.1f %% of the line (best %.1f)", 100 * floor / median,
                  100 * floor / times.front());
    }
    const CommunicatorStatistics statistics = (*communicator)->Statistics();
    for (const NeighbourStatistics& neighbour : statistics.neighbours) {
      std::printf(", node %d by %s, %d for bulk: %s", neighbour.node.value(),
                  neighbour.line.transports.c_str(), neighbour.line.bulk_connections,
                  neighbour.line.reason.c_str());
    }
    std::printf("\n");
  }
  // Nobody closes while another still needs its last message.
  CollectiveRequest barrier;
  barrier.id = {1, 0};
  barrier.kind = CollectiveKind::kBarrier;
  if (!(*communicator)->TryPost(barrier)) return 1;
  runner.Complete(1);
  return 0;
}

}  // namespace
}  // namespace ringd

int main(int argc, char** argv) {
  ringd::Options options;
  CLI::App app("Times collectives of a backend, one process for each node");
  app.add_option("--folder", options.folder, "Where the nodes leave their addresses")->required();
  app.add_option("--backend", options.backend, "tcp goes over the loopback interface")
      ->check(CLI::IsMember({"ucx", "tcp"}));
  app.add_option("--node", options.node);
  app.add_option("--nodes", options.node_count);
  app.add_option("--bytes", options.bytes);
  app.add_option("--iterations", options.iterations);
  app.add_option("--in-flight", options.in_flight, "Operations posted at a time");
  app.add_option("--spins", options.spins, "Progress calls without work before sleeping");
  app.add_option("--gbit", options.gbit_per_second, "The line's speed, to compare with");
  app.add_option("--kind", options.kind)
      ->check(CLI::IsMember({"allreduce", "broadcast", "barrier"}));
  app.add_option("--weights", options.weights, "Of jobs side by side: what each sends")
      ->delimiter(',');
  app.add_option("--interface", options.transport.interfaces);
  app.add_option("--transports", options.transport.transports);
  app.add_option("--streams", options.transport.streams_per_neighbour, "0: as measured");
  app.add_option("--chunk", options.algorithms.chunk_bytes);
  app.add_option("--flat", options.algorithms.flat_all_reduce_bytes);
  app.add_option("--small", options.algorithms.small_all_reduce_bytes);
  CLI11_PARSE(app, argc, argv);
  return ringd::Run(options);
}
