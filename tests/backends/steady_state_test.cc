// Once a communicator has seen its operations they cost no memory: nothing is allocated, no page is
// new.
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <new>
#include <vector>

#include "proto/base/clock.h"
#include "tests/backends/backend_world.h"

namespace {

std::atomic<std::uint64_t> allocations{0};

void* Allocate(std::size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* const memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}

}  // namespace

// The array and aligned forms come here, or allocate by themselves.
// NOLINTBEGIN(misc-new-delete-overloads)
void* operator new(std::size_t bytes) { return Allocate(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*bytes*/) noexcept { std::free(memory); }
// NOLINTEND(misc-new-delete-overloads)

namespace ringd {
namespace {

constexpr int kNodes = 4;

struct Work {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  std::size_t elements = 0;  // float32
};

// Each operation in a channel of its own, all in flight at once, over and over.
class Rounds {
 public:
  Rounds(BackendKind kind, const std::vector<Work>& work) : world_(kind, kNodes), work_(work) {
    for (const Work& one : work_) {
      for (int node = 0; node < kNodes; ++node) buffers_.emplace_back(one.elements + 1, 1.0F);
    }
    // The test's own memory, all of it touched.
    for (auto& completions : world_.completions) {
      completions.resize(100'000);
      completions.clear();
    }
  }

  void Run(int count) {
    for (int round = 0; round < count; ++round) RunOnce();
  }

 private:
  void RunOnce() {
    for (int node = 0; node < kNodes; ++node) {
      for (std::size_t i = 0; i < work_.size(); ++i) Post(node, i);
    }
    ++sequence_;
    const std::size_t expected = sequence_ * work_.size();
    const Clock::time_point deadline = Clock::now() + std::chrono::seconds(20);
    bool done = false;
    while (!done && Clock::now() < deadline) {
      world_.Step();
      done = std::ranges::all_of(world_.completions,
                                 [expected](const auto& of) { return of.size() == expected; });
    }
    if (!done) FAIL("an operation has not ended");
  }
  void Post(int node, std::size_t i) {
    const OperationId id{static_cast<std::uint32_t>(i), sequence_};
    float* const buffer = buffers_[i * kNodes + static_cast<std::size_t>(node)].data();
    const Work& work = work_[i];
    CollectiveRequest request = Barrier(id);
    if (work.kind == CollectiveKind::kBroadcast) {
      request = Broadcast(id, 1, DataType::kFloat32, buffer, work.elements);
    } else if (work.kind == CollectiveKind::kAllReduce) {
      request = AllReduce(id, DataType::kFloat32, ReduceOp::kMax, buffer, work.elements);
    }
    if (!world_.at(node).TryPost(request)) FAIL("not accepted");
  }

  BackendWorld world_;
  const std::vector<Work> work_;
  std::vector<std::vector<float>> buffers_;
  std::uint32_t sequence_ = 0;
};

std::uint64_t PageFaults() {
  rusage usage{};
  REQUIRE(::getrusage(RUSAGE_THREAD, &usage) == 0);
  return static_cast<std::uint64_t>(usage.ru_minflt + usage.ru_majflt);
}

TEST_CASE("steady state: no algorithm allocates memory or faults pages in") {
  const BackendKind kind = GENERATE(BackendKind::kUcx, BackendKind::kTcp);
  Rounds rounds(kind, {{CollectiveKind::kAllReduce, 8},        // flat
                       {CollectiveKind::kAllReduce, 6'000},    // doubling
                       {CollectiveKind::kAllReduce, 300'000},  // ring
                       {CollectiveKind::kBroadcast, 100},      // tree
                       {CollectiveKind::kBroadcast, 300'000},  // chain
                       {CollectiveKind::kBarrier, 0}});
  rounds.Run(50);
  REQUIRE(allocations.load() > 0);
  // A pool still grows when more is under way at once than ever before: such stretches do not
  // count.
  std::uint64_t least_allocations = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t least_faults = least_allocations;
  for (int stretch = 0; stretch < 20; ++stretch) {
    const std::uint64_t allocations_before = allocations.load();
    const std::uint64_t faults_before = PageFaults();
    rounds.Run(10);
    least_faults = std::min(least_faults, PageFaults() - faults_before);
    least_allocations = std::min(least_allocations, allocations.load() - allocations_before);
  }
  INFO(NameOf(kind));
  CHECK(least_allocations == 0);
  CHECK(least_faults == 0);
}

}  // namespace
}  // namespace ringd
