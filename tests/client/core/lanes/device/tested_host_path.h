// A host path in a test's child, over operations that end when the test says so.
#ifndef RINGD_TESTS_CLIENT_CORE_LANES_DEVICE_TESTED_HOST_PATH_H_
#define RINGD_TESTS_CLIENT_CORE_LANES_DEVICE_TESTED_HOST_PATH_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "client/core/lanes/device/host_path.h"
#include "proto/base/memfd.h"
#include "proto/base/memory_mapping.h"
#include "tests/backends/cuda/opened_gpu.h"

namespace ringd::client {

using emulator::Child;
using emulator::RunEmulated;

inline constexpr std::size_t kBytes = 4096;
// In eight pieces of 128 KiB.
inline constexpr std::size_t kLargeBytes = std::size_t{1} << 20;
inline constexpr std::size_t kPieceBytes = kLargeBytes / 8;
inline constexpr std::chrono::seconds kPatience{20};

inline Clock::time_point Soon() { return Clock::now() + kPatience; }

// Operations in host memory, which end when the test says so.
class TestedQueue final : public OperationQueue {
 public:
  struct Submitted {
    Registration* tensor = nullptr;
    char* address = nullptr;
  };

  absl::StatusOr<std::uint64_t> Submit(Registration& tensor, void* address) {
    const MutexLock lock(mutex_);
    if (submitted_.size() >= room_) return absl::ResourceExhaustedError("no room");
    submitted_.push_back({&tensor, static_cast<char*>(address)});
    return submitted_.size() - 1;
  }
  void SetRoom(std::size_t operations) {
    const MutexLock lock(mutex_);
    room_ = operations;
  }
  std::vector<Submitted> submitted() {
    const MutexLock lock(mutex_);
    return submitted_;
  }
  void End(std::uint64_t sequence, const absl::Status& status) {
    const MutexLock lock(mutex_);
    ended_[sequence] = status;
  }

  SubmitResult TrySubmit(Submission& /*record*/, const OperationEnd& /*end*/) override {
    return SubmitResult::kEnded;
  }
  bool WaitForRoom(const OperationEnd& /*end*/, Clock::time_point /*deadline*/) override {
    return false;
  }
  WaitResult Wait(std::uint64_t sequence, Clock::time_point deadline) override {
    for (;; std::this_thread::yield()) {
      const WaitResult result = Test(sequence);
      if (result != WaitResult::kTimeout || Clock::now() >= deadline) return result;
    }
  }
  WaitResult Test(std::uint64_t sequence) override {
    const MutexLock lock(mutex_);
    if (ended_.contains(sequence)) return WaitResult::kDone;
    return state.GivenUp() ? WaitResult::kEnded : WaitResult::kTimeout;
  }
  bool Consume(std::uint64_t sequence, OperationOutcome& outcome, OperationEnd& end) override {
    const MutexLock lock(mutex_);
    outcome.completed = ended_.contains(sequence);
    if (outcome.completed) outcome.status = static_cast<std::int32_t>(ended_[sequence].code());
    end.registration = submitted_[sequence].tensor;
    return true;
  }
  std::size_t ConsumeSucceeded(std::span<const std::uint64_t> /*sequences*/,
                               std::vector<OperationEnd>& /*ends*/) override {
    return 0;
  }
  const Registration* FindUsed(
      const std::unordered_set<const Registration*>& /*registrations*/) override {
    return nullptr;
  }
  void WakeAll() noexcept override {}

  SessionState state;

 private:
  Mutex mutex_;
  std::size_t room_ ABSL_GUARDED_BY(mutex_) = 1000;
  std::vector<Submitted> submitted_ ABSL_GUARDED_BY(mutex_);
  std::map<std::uint64_t, absl::Status> ended_ ABSL_GUARDED_BY(mutex_);
};

// A trainer with a GPU, an arena and the host path; the test is what carries operations out.
struct Trainer {
  explicit Trainer(const Child& test, std::size_t arena_bytes = std::size_t{16} << 20)
      : child(test), gpu(OpenGpu(child)) {
    test.UseDevice();
    const UniqueFd fd = CHILD_VALUE(CreateSealedMemfd("arena", arena_bytes));
    arena.emplace(CHILD_VALUE(MemoryMapping::Map(fd.get(), arena_bytes)));
    HostPath::Carrier carrier;
    carrier.submit = [this](Registration& tensor, void* address) {
      return queue.Submit(tensor, address);
    };
    carrier.queue_of = [this](const Registration& /*tensor*/) -> OperationQueue& { return queue; };
    carrier.orders_of = [](const Registration& tensor) {
      StagedCopies::Orders orders;
      if (tensor.bytes < kLargeBytes) return orders;
      orders.source = {7, 6, 5, 4, 3, 2, 1, 0};
      orders.result = {3, 2, 1, 0, 4, 5, 6, 7};
      return orders;
    };
    carrier.submit_in_pieces = [this](Registration& tensor,
                                      void* address) -> absl::StatusOr<StagedCopies::InPieces> {
      if (!has_records) return absl::UnavailableError("no record");
      const absl::StatusOr<std::uint64_t> submitted = queue.Submit(tensor, address);
      if (!submitted.ok()) return submitted.status();
      return StagedCopies::InPieces{*submitted, 5};
    };
    carrier.tell_piece = [this](std::uint32_t progress, std::uint32_t piece) {
      if (progress == 5) told.fetch_or(1U << piece);
    };
    carrier.final_pieces = [this](std::uint32_t /*progress*/) { return final_pieces.load(); };
    carrier.conclude = [](const OperationOutcome& outcome, const OperationEnd& /*end*/) {
      return absl::Status(static_cast<absl::StatusCode>(outcome.status), "the queue's words");
    };
    carrier.give_up = [this](const absl::Status& why) { queue.state.Lose(why); };
    path = CHILD_VALUE(HostPath::Create(gpu, *arena, queue.state, std::move(carrier)));
    stream = child.NewStream();
  }

  // Stays until the host path has ended, whose thread looks at what it has.
  Registration* Describe(std::uint32_t name, std::uint64_t bytes = kBytes) {
    Registration& registration = registrations.emplace_back();
    registration.description.name = "gradient";
    registration.numbers.tensor = name;
    registration.bytes = bytes;
    registration.element_bytes = 4;
    return &registration;
  }
  void* NewMemory(char value, std::size_t bytes = kBytes) const {
    const CUdeviceptr made = child.NewMemory(bytes);
    std::memset(child.emulator().alias(made, bytes), value, bytes);
    return reinterpret_cast<void*>(made);
  }
  char* Look(const void* pointer) const {
    return static_cast<char*>(child.emulator().alias(DeviceAddressOf(pointer), kBytes));
  }
  // What is put on the stream waits until Open.
  CUdeviceptr HoldUp(CUstream on) const {
    const CUdeviceptr gate = child.NewMemory(8);
    std::memset(child.emulator().alias(gate, 8), 0, 8);
    CHILD_OK(child.cuda().cuStreamWaitValue64(on, gate, 1, CU_STREAM_WAIT_VALUE_GEQ));
    return gate;
  }
  void Open(CUdeviceptr gate) const {
    CHILD_OK(child.cuda().cuStreamWriteValue64(child.NewStream(), gate, 1, 0));
  }
  std::vector<TestedQueue::Submitted> AwaitSubmitted(std::size_t count) {
    child.WaitUntil([&] { return queue.submitted().size() >= count; }, "submissions");
    return queue.submitted();
  }
  absl::Status Finish(std::uint64_t sequence) const {
    OperationOutcome outcome;
    OperationEnd end;
    CHILD_CHECK(path->Consume(sequence, outcome, end));
    CHILD_CHECK(outcome.completed);
    return path->staging().Finish(std::span(&end, 1));
  }

  const Child& child;
  std::shared_ptr<const CudaContext> gpu;
  std::optional<Arena> arena;
  std::list<Registration> registrations;
  TestedQueue queue;
  bool has_records = true;
  std::atomic<std::uint32_t> told{0};          // bits of pieces
  std::atomic<std::uint64_t> final_pieces{0};  // likewise
  std::unique_ptr<HostPath> path;
  CUstream stream = nullptr;
};

}  // namespace ringd::client

#endif  // RINGD_TESTS_CLIENT_CORE_LANES_DEVICE_TESTED_HOST_PATH_H_
