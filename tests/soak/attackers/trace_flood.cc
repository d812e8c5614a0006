// A user with many jobs asks for the traces of all of them, again and again, from all connections
// that he may have: ringd's engine reads the events, so it would have no time for anybody else.
// Each ring is full of what has to be read, believed, named and passed on. As a rank of a job over
// two nodes it does the same with that one, whose traces go through the coordinator.
#include <fcntl.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/support/channel_arguments.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "proto/attach/handshake.h"
#include "proto/base/clock.h"
#include "proto/base/memory_mapping.h"
#include "proto/base/unix_socket.h"
#include "proto/rpc/admin.grpc.pb.h"
#include "proto/shm/session_segment.h"
#include "proto/trace/trace_ring.h"
#include "tests/soak/attackers/attacker.h"
#include "tests/soak/attackers/member.h"
#include "tests/soak/attackers/raw_session.h"

namespace ringd::soak {
namespace {

constexpr int kJobs = 40;
constexpr std::uint32_t kNames = 500;
// One more than ringd takes.
constexpr int kCallsPerJob = 5;
constexpr int kConnections = 8;
// A ring that has been written for so long can be read anew with each call.
constexpr std::uint64_t kWritten = std::uint64_t{1} << 40;

struct Counts {
  std::atomic<std::uint64_t> answers{0};
  std::atomic<std::uint64_t> bytes{0};
  std::atomic<std::uint64_t> without_trace{0};  // a node was left out
  std::atomic<std::uint64_t> refused{0};
};

// Whoever reads it believes it.
void FillRing(std::byte* segment) {
  const auto* const header = reinterpret_cast<const SessionHeader*>(segment);
  const TraceRingView ring =
      ViewTraceRing(segment + header->trace_ring_offset, kTrainerTraceEvents);
  TraceWriter writer(ring);
  for (std::uint32_t i = 0; i < kTrainerTraceEvents; ++i) {
    TraceEvent event;
    event.stage = TraceStage::kSubmitted;
    event.at_ns = MonotonicNanos();
    event.tensor = i % kNames;
    event.sequence = i;
    writer.Write(event);
  }
  ring.header->written.store(kWritten);
}

// A job of one rank with many names. False: refused.
bool MakeJob(RawSession& session, const std::string& job) {
  if (!session.attached()) return false;
  const std::uint32_t communicator = session.JoinAlone(job);
  if (communicator == 0) return false;
  v1::RegisterTensorsRequest request;
  for (std::uint32_t i = 0; i < kNames; ++i) {
    v1::TensorDescription& tensor = *request.add_tensors();
    tensor.set_communicator(communicator);
    tensor.set_name(std::string(200, 'n') + std::to_string(i));
    tensor.set_data_type(10);
    tensor.add_shape(16);
    tensor.set_prescale(1);
    tensor.set_postscale(1);
  }
  v1::RegisterTensorsReply reply;
  if (!session.stub().RegisterTensors(session.Call(5).get(), request, &reply).ok()) return false;
  const int fd = session.descriptors[kSessionSegmentFd].get();
  const off_t bytes = ::lseek(fd, 0, SEEK_END);
  auto mapping = MemoryMapping::Map(fd, static_cast<std::uint64_t>(bytes));
  if (!mapping.ok()) return false;
  FillRing(mapping->data());
  return true;
}

// A connection of its own, as ringctl's; null: refused.
std::unique_ptr<v1::Admin::Stub> Connect(const std::string& path) {
  auto connection = ConnectUnix(path, Clock::now() + std::chrono::seconds(5));
  if (!connection.ok()) return nullptr;
  ::fcntl(connection->get(), F_SETFL, ::fcntl(connection->get(), F_GETFL) | O_NONBLOCK);
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(64 << 20);
  return v1::Admin::NewStub(
      grpc::CreateCustomInsecureChannelFromFd("ringd", connection->Release(), arguments));
}

// One call after the other, until the process ends; it is never freed.
class Asker {
 public:
  Asker(v1::Admin::Stub* stub, const std::string& job, int nodes, const Target& target,
        Counts* counts)
      : stub_(stub), target_(target), counts_(counts) {
    request_.set_job_id(job);
    for (int node = 0; node < nodes; ++node) {
      // All that the engine's ring has, and a rank's.
      request_.add_positions()->add_rings(0);
      request_.mutable_positions(node)->add_rings(0);
    }
  }

  void Ask() {
    if (target_.Over()) return;
    context_ = std::make_unique<grpc::ClientContext>();
    context_->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
    reply_.Clear();
    stub_->async()->TraceJob(context_.get(), &request_, &reply_,
                             [this](const grpc::Status& status) {
                               Count(status);
                               Ask();
                             });
  }

 private:
  void Count(const grpc::Status& status) {
    if (!status.ok()) {
      ++counts_->refused;
      return;
    }
    ++counts_->answers;
    for (const v1::TracedNode& node : reply_.nodes()) {
      if (!node.has_trace()) ++counts_->without_trace;
      for (const v1::TraceRing& ring : node.trace().rings()) {
        counts_->bytes += ring.events().size();
      }
    }
  }

  v1::Admin::Stub* const stub_;
  const Target target_;
  Counts* const counts_;
  v1::TraceRequest request_;
  v1::TraceReply reply_;
  std::unique_ptr<grpc::ClientContext> context_;
};

class TraceFlood : public Attacker {
 public:
  void Attack(const Target& target) override {
    std::vector<std::unique_ptr<RawSession>> sessions;
    std::vector<std::pair<std::string, int>> jobs;  // with the number of nodes
    JoinOverTwoNodes(jobs);
    while (sessions.size() < kJobs && !target.Over()) {
      auto session = std::make_unique<RawSession>(target.socket);
      const std::string job =
          "traced" + std::to_string(target.seed) + "-" + std::to_string(sessions.size());
      if (!MakeJob(*session, job)) break;
      sessions.push_back(std::move(session));
      jobs.emplace_back(job, 1);
    }
    std::vector<std::unique_ptr<v1::Admin::Stub>> stubs;
    for (int i = 0; i < kConnections; ++i) {
      if (auto stub = Connect(target.socket); stub != nullptr) stubs.push_back(std::move(stub));
    }
    static Counts counts;
    std::vector<std::unique_ptr<Asker>> askers;
    for (std::size_t i = 0; i < jobs.size() * kCallsPerJob && !stubs.empty(); ++i) {
      const auto& [job, nodes] = jobs[i % jobs.size()];
      askers.push_back(
          std::make_unique<Asker>(stubs[i % stubs.size()].get(), job, nodes, target, &counts));
      askers.back()->Ask();
    }
    while (!target.Over()) target.Rest(std::chrono::milliseconds(100));
    Did("%zu jobs on %zu connections: %llu traces of %.1f MiB in all, %llu with a node left out, "
        "%llu refused",
        jobs.size(), stubs.size(), static_cast<unsigned long long>(counts.answers),
        static_cast<double>(counts.bytes) / (1 << 20),
        static_cast<unsigned long long>(counts.without_trace),
        static_cast<unsigned long long>(counts.refused));
    // gRPC's threads may be amid an answer.
    std::fflush(stdout);
    std::_Exit(0);
  }

 private:
  static void JoinOverTwoNodes(std::vector<std::pair<std::string, int>>& jobs) {
    const char* const job = std::getenv("RINGD_JOB_ID");
    if (job == nullptr || JoinFromEnvironment() == nullptr) return;
    for (const SharedMemory& memory : SharedMemories("ringd-session")) FillRing(memory.base);
    jobs.emplace_back(job, 2);
  }
};

}  // namespace

std::unique_ptr<Attacker> MakeTraceFlood() { return std::make_unique<TraceFlood>(); }

}  // namespace ringd::soak
