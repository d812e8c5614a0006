#include "tests/backends/backend_world.h"

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/tcp/tcp_transport.h"
#include "backends/ucx/ucx_transport.h"
#include "proto/base/clock.h"
#include "tests/backends/tcp/loopback_sockets.h"

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
    case BackendKind::kUcxSharedMemory:
      return "ucx, shared memory";
    case BackendKind::kTcp:
      return "tcp";
    case BackendKind::kTcpTwoStreams:
      return "tcp, two streams";
  }
  return "?";
}

std::unique_ptr<Transport> MakeTransport(BackendKind kind, TransportOptions options) {
  const bool two = kind == BackendKind::kUcxTwoStreams || kind == BackendKind::kTcpTwoStreams;
  options.streams_per_neighbour = two ? 2 : kAutoStreams;
  if (kind == BackendKind::kUcxSharedMemory) options.transports = "sysv,self";
  const bool tcp = kind == BackendKind::kTcp || kind == BackendKind::kTcpTwoStreams;
  auto transport = tcp ? CreateTcpTransport(options, std::make_unique<LoopbackSockets>())
                       : CreateUcxTransport(options);
  if (!transport.ok()) throw std::runtime_error(std::string(transport.status().message()));
  return *std::move(transport);
}

BackendWorld::BackendWorld(BackendKind kind, int node_count, AlgorithmOptions algorithm_options,
                           TransportOptions options)
    : completions(static_cast<std::size_t>(node_count)), algorithms(algorithm_options) {
  if (kind == BackendKind::kLoopback) hub = std::make_unique<LoopbackHub>();
  for (int node = 0; node < node_count; ++node) {
    if (kind == BackendKind::kLoopback) {
      transports.push_back(hub->CreateTransport());
    } else {
      transports.push_back(MakeTransport(kind, options));
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

void CheckingAccessor::Serve(CollectiveRequest& request) {
  request.accessor = this;
  request_ = request;
}

const std::byte* CheckingAccessor::Input(std::size_t begin, std::size_t end) noexcept {
  if (!Take(begin, end)) return nullptr;
  if (way_ == Way::kInPlace) return &data_[begin];
  std::memcpy(Buffer(begin), &data_[begin], end - begin);
  return Buffer(begin);
}

bool CheckingAccessor::AddInput(std::size_t begin, std::size_t end,
                                const std::byte* partial) noexcept {
  if (!Take(begin, end)) return false;
  const void* const sources[] = {partial, &data_[begin]};
  ReduceMany(request_.data_type, request_.op, sources, Buffer(begin), Elements(begin, end));
  return true;
}

const std::byte* CheckingAccessor::AddLastInput(std::size_t begin, std::size_t end,
                                                const std::byte* partial) noexcept {
  if (!Take(begin, end)) return nullptr;
  HandOver(begin, end);
  const void* const sources[] = {partial, &data_[begin]};
  void* const destinations[] = {&data_[begin]};
  ReduceManyToMany(request_.data_type, request_.op, sources, destinations, Elements(begin, end),
                   scaling_);
  if (way_ == Way::kInPlace) return &data_[begin];
  std::memcpy(Buffer(begin), &data_[begin], end - begin);
  return Buffer(begin);
}

void CheckingAccessor::OnCombined(std::size_t begin, std::size_t end) noexcept {
  HandOver(begin, end);
  Scale(request_.data_type, Buffer(begin), Elements(begin, end), scaling_);
  std::memcpy(&data_[begin], Buffer(begin), end - begin);
}

const std::byte* CheckingAccessor::OnResult(std::size_t begin, std::size_t end,
                                            const std::byte* result, bool keep) noexcept {
  HandOver(begin, end);
  if (result != &data_[begin]) std::memcpy(&data_[begin], result, end - begin);
  if (!keep) return nullptr;
  if (way_ == Way::kInPlace) return &data_[begin];
  if (result != Buffer(begin)) std::memcpy(Buffer(begin), result, end - begin);
  return Buffer(begin);
}

std::size_t CheckingAccessor::Elements(std::size_t begin, std::size_t end) const noexcept {
  return (end - begin) / SizeOf(request_.data_type);
}

bool CheckingAccessor::Take(std::size_t begin, std::size_t end) noexcept {
  CheckRange(begin, end);
  ++asked_;
  if (refusals_ > 0) {
    --refusals_;
    return false;
  }
  for (std::size_t i = begin; i < end; ++i) {
    if (taken_[i]++ != 0) violation_ = absl::StrCat("byte ", i, " was taken twice");
    if (handed_over_[i] != 0) violation_ = absl::StrCat("byte ", i, " was taken too late");
  }
  return true;
}

void CheckingAccessor::HandOver(std::size_t begin, std::size_t end) noexcept {
  CheckRange(begin, end);
  for (std::size_t i = begin; i < end; ++i) {
    if (handed_over_[i]++ != 0) violation_ = absl::StrCat("byte ", i, " was handed over twice");
  }
}

void CheckingAccessor::CheckRange(std::size_t begin, std::size_t end) noexcept {
  const std::size_t element = SizeOf(request_.data_type);
  if (begin >= end || end > data_.size() || begin % element != 0 || end % element != 0) {
    violation_ = absl::StrCat("range ", begin, "..", end, " of ", data_.size());
  }
}

bool CheckingAccessor::AllTakenOnce() const {
  return std::all_of(taken_.begin(), taken_.end(), [](auto count) { return count == 1; });
}

bool CheckingAccessor::NoneTaken() const {
  return std::all_of(taken_.begin(), taken_.end(), [](auto count) { return count == 0; });
}

bool CheckingAccessor::AllHandedOverOnce() const {
  return std::all_of(handed_over_.begin(), handed_over_.end(),
                     [](auto count) { return count == 1; });
}

bool CheckingAccessor::NoneHandedOver() const {
  return std::all_of(handed_over_.begin(), handed_over_.end(),
                     [](auto count) { return count == 0; });
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
