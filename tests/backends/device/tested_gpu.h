// A DeviceThread in a test's child, and the trainer's end of what it makes.
#ifndef RINGD_TESTS_BACKENDS_DEVICE_TESTED_GPU_H_
#define RINGD_TESTS_BACKENDS_DEVICE_TESTED_GPU_H_

#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "backends/cuda/cuda_stream.h"
#include "backends/cuda/device_slab.h"
#include "backends/device/device_thread.h"
#include "tests/backends/cuda/opened_gpu.h"
#include "tests/gpu/emulator/nccl/emulated_ranks.h"

namespace ringd {

// For RINGD_EMULATOR_CUDA_KERNELS.
inline constexpr char kMoveKernels[] = "tests/backends/cuda/kernels/libemulated_kernels.so";

inline constexpr DeviceSlabId kSlab{7};
inline constexpr DeviceCommunicatorId kWorld{1};
inline constexpr std::size_t kSlabBytes = 1 << 20;
inline constexpr std::size_t kFusionBytes = 64 << 10;
inline constexpr std::chrono::seconds kPatience{10};

// Of ranks whose buckets are packed, with `more`.
inline emulator::Environment With(const emulator::Environment& more = {}) {
  emulator::Environment settings = {{"RINGD_EMULATOR_CUDA_KERNELS", kMoveKernels},
                                    {"RINGD_EMULATOR_NCCL_MAX_DELAY_US", "200"}};
  settings.insert(more.begin(), more.end());
  return settings;
}

// Thread safety: one thread.
class TestedGpu {
 public:
  // Starts the thread for GPU `ordinal`; does not wait for it.
  TestedGpu(const emulator::Child& child, int ordinal)
      : child_(child),
        context_(OpenGpu(child, ordinal)),
        thread_(std::make_unique<DeviceThread>(
            DeviceThreadOptions{emulator::kLibrary, emulator::kNcclLibrary, context_->uuid(),
                                "slab_setting", "fusion_setting"})) {}

  DeviceThread& thread() { return *thread_; }
  const std::shared_ptr<const CudaContext>& context() const { return context_; }

  // The next event of that kind, which must come in time; those before it are kept.
  template <typename Event>
  Event Wait() {
    Event found{};
    child_.WaitUntil([&] { return Take(&found); }, typeid(Event).name());
    return found;
  }
  // Whether there is one by now.
  template <typename Event>
  bool Take(Event* event) {
    for (DeviceEvent& one : thread_->TakeEvents()) events_.push_back(std::move(one));
    for (auto at = events_.begin(); at != events_.end(); ++at) {
      if (!std::holds_alternative<Event>(*at)) continue;
      *event = std::get<Event>(std::move(*at));
      events_.erase(at);
      return true;
    }
    return false;
  }

  // The trainer's mapping of a new slab.
  ImportedSlab NewSlab(DeviceSlabId id = kSlab) {
    const emulator::Child& child = child_;
    thread_->CreateSlab(id, kSlabBytes);
    auto created = Wait<DeviceSlabCreated>();
    CHILD_STATUS(created.status);
    CHILD_CHECK(created.slab == id);
    return CHILD_VALUE(
        ImportedSlab::Import(context_, std::move(created.descriptor), created.bytes, created.gpu));
  }

  void BeginConnect(const NcclIdBytes& id, int rank, int size,
                    DeviceCommunicatorId communicator = kWorld) {
    thread_->Connect(communicator, id, rank, size, kFusionBytes, kSlab, Clock::now() + kPatience);
  }
  void Connect(const NcclIdBytes& id, int rank, int size,
               DeviceCommunicatorId communicator = kWorld) {
    const emulator::Child& child = child_;
    BeginConnect(id, rank, size, communicator);
    CHILD_STATUS(Wait<DeviceCommunicatorConnected>().status);
  }

 private:
  const emulator::Child& child_;
  std::shared_ptr<const CudaContext> context_;
  std::unique_ptr<DeviceThread> thread_;
  std::vector<DeviceEvent> events_;
};

inline NcclIdBytes IdOf(const emulator::NcclRank& rank) {
  NcclIdBytes id{};
  std::memcpy(id.data(), rank.id().bytes, id.size());
  return id;
}

// A tensor of `count` elements, each at `source`, with its result at `destination`; both are bytes
// behind the timeline.
inline DeviceTensor TensorAt(std::uint64_t source, std::uint64_t destination, std::uint64_t count) {
  DeviceTensor tensor;
  tensor.slab = kSlab;
  tensor.source = kTimelineBytes + source;
  tensor.destination = kTimelineBytes + destination;
  tensor.count = count;
  return tensor;
}

// That waits for `value` and signals it, of pair 0.
inline DeviceBucket BucketOf(std::vector<DeviceTensor> tensors, std::uint64_t value) {
  DeviceBucket bucket;
  bucket.id = value;
  bucket.communicator = kWorld;
  bucket.tensors = std::move(tensors);
  bucket.ready = {{kSlab, ReadySlot(0), value}};
  bucket.done = {{kSlab, DoneSlot(0), value}};
  bucket.deadline = Clock::now() + kPatience;
  return bucket;
}

// The memory of a slab as a test reads and writes it, past CUDA. Offsets are behind the timeline.
class SlabView {
 public:
  SlabView(const emulator::Child& child, const ImportedSlab& slab)
      : bytes_(static_cast<char*>(child.emulator().alias(slab.address(), slab.bytes()))) {}

  template <typename T>
  void Write(std::uint64_t offset, const std::vector<T>& values) const {
    std::memcpy(bytes_ + kTimelineBytes + offset, values.data(), values.size() * sizeof(T));
  }
  template <typename T>
  std::vector<T> Read(std::uint64_t offset, std::size_t count) const {
    std::vector<T> values(count);
    std::memcpy(values.data(), bytes_ + kTimelineBytes + offset, count * sizeof(T));
    return values;
  }
  std::uint64_t Slot(std::uint32_t slot) const {
    return __atomic_load_n(AddressOf(slot), __ATOMIC_ACQUIRE);
  }
  // As a trainer's stream does it.
  void SetSlot(std::uint32_t slot, std::uint64_t value) const {
    __atomic_store_n(AddressOf(slot), value, __ATOMIC_RELEASE);
  }

 private:
  std::uint64_t* AddressOf(std::uint32_t slot) const {
    return reinterpret_cast<std::uint64_t*>(bytes_ + slot * kTimelineSlotBytes);
  }

  char* bytes_;
};

}  // namespace ringd

#endif  // RINGD_TESTS_BACKENDS_DEVICE_TESTED_GPU_H_
