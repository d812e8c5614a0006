#include "tests/backends/backend_world.h"

#include <atomic>
#include <stdexcept>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/ucx/ucx_transport.h"
#include "proto/base/clock.h"

#ifdef RINGD_ASAN
// Some of what UCX 1.13 allocates for a worker it never frees.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() {
  return "leak:libucs.so\nleak:libucp.so\nleak:libuct.so\n";
}
#endif

namespace ringd {

std::string NameOf(BackendKind kind) {
  switch (kind) {
    case BackendKind::kLoopback:
      return "loopback";
    case BackendKind::kUcx:
      return "ucx";
    case BackendKind::kUcxTwoStreams:
      return "ucx, two streams";
  }
  return "?";
}

BackendWorld::BackendWorld(BackendKind kind, int node_count, AlgorithmOptions options)
    : completions(static_cast<std::size_t>(node_count)), algorithms(options) {
  if (kind == BackendKind::kLoopback) hub = std::make_unique<LoopbackHub>();
  for (int node = 0; node < node_count; ++node) {
    if (kind == BackendKind::kLoopback) {
      transports.push_back(hub->CreateTransport());
    } else {
      TransportOptions transport_options;
      transport_options.streams_per_neighbour = kind == BackendKind::kUcxTwoStreams ? 2 : 1;
      auto transport = CreateUcxTransport(transport_options);
      if (!transport.ok()) throw std::runtime_error(std::string(transport.status().message()));
      transports.push_back(*std::move(transport));
    }
    addresses.push_back(transports.back()->LocalAddress());
  }
  for (int node = 0; node < node_count; ++node) {
    auto communicator =
        transports[static_cast<std::size_t>(node)]->CreateCommunicator(SpecOf(node, 1));
    if (!communicator.ok()) throw std::runtime_error(std::string(communicator.status().message()));
    communicators.push_back(*std::move(communicator));
  }
}

BackendWorld::~BackendWorld() {
  for (int node = 0; node < node_count(); ++node) Kill(node);
}

CommunicatorSpec BackendWorld::SpecOf(int node, std::uint64_t wire_id) const {
  CommunicatorSpec spec;
  spec.wire_id = wire_id;
  spec.self = NodeIndex(node);
  spec.addresses = addresses;
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    spec.node_names.push_back(absl::StrCat("node-", i));
  }
  spec.algorithms = algorithms;
  return spec;
}

void BackendWorld::Step() {
  for (std::size_t node = 0; node < transports.size(); ++node) {
    if (transports[node] == nullptr) continue;
    transports[node]->Progress();
    if (communicators[node] == nullptr) continue;
    Completion out[16];
    const std::size_t count = communicators[node]->Poll(out);
    completions[node].insert(completions[node].end(), out, out + count);
  }
}

bool BackendWorld::RunUntil(const std::function<bool()>& done, std::chrono::milliseconds limit) {
  const Clock::time_point deadline = Clock::now() + limit;
  while (!done()) {
    if (Clock::now() > deadline) return false;
    Step();
  }
  return true;
}

bool BackendWorld::RunUntilCompleted(std::size_t count) {
  return RunUntil([&] {
    for (std::size_t node = 0; node < communicators.size(); ++node) {
      if (communicators[node] != nullptr && completions[node].size() < count) return false;
    }
    return true;
  });
}

const Completion* BackendWorld::Find(int node, OperationId id) const {
  for (const Completion& completion : completions[static_cast<std::size_t>(node)]) {
    if (completion.id == id) return &completion;
  }
  return nullptr;
}

void BackendWorld::Kill(int node) {
  const auto index = static_cast<std::size_t>(node);
  communicators[index].reset();
  // On a thread of its own, as a node says goodbye while the others go on.
  std::atomic<bool> gone = false;
  std::thread thread([transport = std::move(transports[index]), &gone]() mutable {
    transport.reset();
    gone = true;
  });
  while (!gone) Step();
  thread.join();
}

bool CheckingStages::IsReady(std::size_t begin, std::size_t end) noexcept {
  CheckRange(begin, end);
  ++asked_;
  if (refusals_ > 0) {
    --refusals_;
    return false;
  }
  for (std::size_t i = begin; i < end; ++i) {
    if (ready_[i] != 0) continue;
    std::size_t last = i;
    while (last < end && ready_[last] == 0) ready_[last++] = 1;
    if (pack) pack(i, last);
    i = last - 1;
  }
  return true;
}

void CheckingStages::OnFinal(std::size_t begin, std::size_t end) noexcept {
  CheckRange(begin, end);
  for (std::size_t i = begin; i < end; ++i) {
    if (final_count_[i]++ != 0) violation_ = absl::StrCat("byte ", i, " was final twice");
  }
  if (unpack) unpack(begin, end);
}

void CheckingStages::CheckRange(std::size_t begin, std::size_t end) noexcept {
  if (begin >= end || end > ready_.size() || begin % element_bytes_ != 0 ||
      end % element_bytes_ != 0) {
    violation_ = absl::StrCat("range ", begin, "..", end, " of ", ready_.size());
  }
}

bool CheckingStages::AllReady() const {
  for (const auto byte : ready_) {
    if (byte == 0) return false;
  }
  return true;
}

bool CheckingStages::AllFinalOnce() const {
  for (const auto count : final_count_) {
    if (count != 1) return false;
  }
  return true;
}

bool CheckingStages::NoneFinalTwice() const {
  for (const auto count : final_count_) {
    if (count > 1) return false;
  }
  return true;
}

CollectiveRequest AllReduce(OperationId id, DataType type, ReduceOp op, void* buffer,
                            std::uint64_t count) {
  CollectiveRequest request;
  request.id = id;
  request.kind = CollectiveKind::kAllReduce;
  request.data_type = type;
  request.op = op;
  request.element_count = count;
  request.buffer = static_cast<std::byte*>(buffer);
  return request;
}

CollectiveRequest Broadcast(OperationId id, int root, DataType type, void* buffer,
                            std::uint64_t count) {
  CollectiveRequest request = AllReduce(id, type, ReduceOp::kSum, buffer, count);
  request.kind = CollectiveKind::kBroadcast;
  request.root = NodeIndex(root);
  return request;
}

CollectiveRequest Barrier(OperationId id) {
  CollectiveRequest request;
  request.id = id;
  request.kind = CollectiveKind::kBarrier;
  return request;
}

}  // namespace ringd
