#include "client/core/lanes/device/device_staging.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "backends/cuda/device_slab.h"
#include "backends/cuda/timeline.h"
#include "client/core/lanes/device/device_memory.h"
#include "client/core/lanes/device/slab_inbox.h"
#include "tests/backends/cuda/opened_gpu.h"

namespace ringd::client {
namespace {

using emulator::Child;
using emulator::RunEmulated;

constexpr std::size_t kSlabBytes = (std::size_t{2} << 20) - kTimelineBytes;
constexpr std::size_t kBytes = 4096;

// The trainer's half of a slab; the test is the engine.
struct Trainer {
  explicit Trainer(const Child& test) : child(test), gpu(OpenGpu(child)) {
    test.UseDevice();
    slab.emplace(CHILD_VALUE(DeviceSlab::Create(gpu, kSlabBytes, "slab_bytes")));
    SlabInbox::Slab sent;
    sent.notice.slab_bytes = slab->bytes();
    sent.descriptor = CHILD_VALUE(slab->Export());
    memory = CHILD_VALUE(DeviceMemory::Import(gpu, std::move(sent)));
    staging = CHILD_VALUE(DeviceStaging::Create(*memory));
    stream = child.NewStream();
    tensor = Describe(kBytes);
  }

  static std::unique_ptr<Registration> Describe(std::uint64_t bytes) {
    auto registration = std::make_unique<Registration>();
    registration->bytes = bytes;
    registration->element_bytes = 4;
    return registration;
  }

  void* NewMemory(char value, std::size_t bytes = kBytes) const {
    const CUdeviceptr made = child.NewMemory(bytes);
    std::memset(child.emulator().alias(made, bytes), value, bytes);
    return reinterpret_cast<void*>(made);
  }
  char* Look(const void* pointer) const {
    return static_cast<char*>(child.emulator().alias(DeviceAddressOf(pointer), kBytes));
  }
  // What the engine's kernels see.
  char* Engine(std::uint64_t offset) const {
    return static_cast<char*>(child.emulator().alias(slab->address() + offset, kBytes));
  }
  void Synchronize(CUstream on) const { CHILD_OK(child.cuda().cuStreamSynchronize(on)); }

  DeviceStaging::Places Place(const void* source, void* destination, CUstream on) const {
    return CHILD_VALUE(staging->Place(*tensor, source, destination, on));
  }
  absl::Status Finish(DeviceBlock* block) const {
    OperationEnd end;
    end.device_block = block;
    return staging->Finish(std::span(&end, 1));
  }

  const Child& child;
  std::shared_ptr<const CudaContext> gpu;
  std::optional<DeviceSlab> slab;
  std::unique_ptr<DeviceMemory> memory;
  std::unique_ptr<DeviceStaging> staging;
  CUstream stream = nullptr;
  std::unique_ptr<Registration> tensor;
};

TEST_CASE("DeviceStaging: a tensor in the slab stays where it is") {
  CHECK(RunEmulated({}, [](const Child& child) {
          const Trainer trainer(child);
          void* const inside = CHILD_VALUE(trainer.memory->Allocate(2 * kBytes));
          const auto places = trainer.Place(inside, static_cast<char*>(inside) + kBytes, nullptr);
          CHILD_CHECK(places.block == nullptr);
          CHILD_CHECK(places.source_offset == kTimelineBytes);
          CHILD_CHECK(places.destination_offset == kTimelineBytes + kBytes);
        }) == "");
}

TEST_CASE("DeviceStaging: a source elsewhere is copied when its stream has it ready") {
  CHECK(RunEmulated({}, [](const Child& child) {
          const Trainer trainer(child);
          void* const source = trainer.NewMemory(1);
          void* const inside = CHILD_VALUE(trainer.memory->Allocate(kBytes));
          CHILD_OK(
              child.cuda().cuMemsetD8Async(DeviceAddressOf(source), 7, kBytes, trainer.stream));
          const auto places = trainer.Place(source, inside, trainer.stream);
          CHILD_CHECK(places.destination_offset == kTimelineBytes);
          CHILD_CHECK(places.source_offset != places.destination_offset);
          trainer.Synchronize(trainer.stream);
          CHILD_CHECK(trainer.Engine(places.source_offset)[kBytes - 1] == 7);
          // The result is in the slab: there is nothing to fetch.
          trainer.staging->Begin(*places.block, 3);
          CHILD_STATUS(trainer.staging->Fetch(*places.block, 3, trainer.stream, std::nullopt));
          CHILD_STATUS(trainer.Finish(places.block));
          CHILD_CHECK(trainer.Look(source)[0] == 7);
        }) == "");
}

TEST_CASE("DeviceStaging: a result is copied when the stream that waits for it has it") {
  CHECK(RunEmulated({}, [](const Child& child) {
          const Trainer trainer(child);
          void* const tensor = trainer.NewMemory(1);
          const auto places = trainer.Place(tensor, tensor, trainer.stream);
          CHILD_CHECK(places.source_offset == places.destination_offset);
          trainer.staging->Begin(*places.block, 3);
          const CUstream waiting = child.NewStream();
          const CUstream also_waiting = child.NewStream();
          CHILD_STATUS(trainer.staging->Fetch(*places.block, 3, waiting, 5));
          CHILD_STATUS(trainer.staging->Fetch(*places.block, 3, also_waiting, 5));
          trainer.Synchronize(trainer.stream);
          CHILD_CHECK(!child.IsDone(waiting) && !child.IsDone(also_waiting));
          std::memset(trainer.Engine(places.destination_offset), 9, kBytes);
          CHILD_STATUS(trainer.slab->timeline().Signal(child.NewStream(), DoneSlot(5), 4));
          trainer.Synchronize(also_waiting);
          CHILD_CHECK(trainer.Look(tensor)[kBytes - 1] == 9);
          // It is on a stream already: the wait does not copy again.
          std::memset(trainer.Engine(places.destination_offset), 10, kBytes);
          CHILD_STATUS(trainer.Finish(places.block));
          CHILD_CHECK(trainer.staging->WaitUntilQuiet(Clock::now()));
          CHILD_CHECK(trainer.Look(tensor)[0] == 9);
          CHILD_REFUSED(absl::StatusCode::kNotFound, "another thread",
                        trainer.staging->Fetch(*places.block, 3, waiting, std::nullopt));
        }) == "");
}

TEST_CASE("DeviceStaging: without a stream that waits, the end of the operation copies") {
  CHECK(RunEmulated({}, [](const Child& child) {
          const Trainer trainer(child);
          void* const source = trainer.NewMemory(1);
          void* const destination = trainer.NewMemory(2);
          const auto places = trainer.Place(source, destination, trainer.stream);
          trainer.staging->Begin(*places.block, 3);
          trainer.Synchronize(trainer.stream);
          std::memset(trainer.Engine(places.destination_offset), 9, kBytes);
          CHILD_STATUS(trainer.Finish(places.block));
          CHILD_CHECK(trainer.Look(destination)[kBytes - 1] == 9);
          CHILD_CHECK(trainer.Look(source)[0] == 1);
        }) == "");
}

TEST_CASE("DeviceStaging: the next tensor waits for the stream that still reads the place") {
  CHECK(RunEmulated({}, [](const Child& child) {
          const Trainer trainer(child);
          void* const first = trainer.NewMemory(1);
          void* const second = trainer.NewMemory(2);
          const CUstream late = child.NewStream();
          const CUdeviceptr gate = child.NewMemory(8);
          std::memset(child.emulator().alias(gate, 8), 0, 8);
          const auto before = trainer.Place(first, first, trainer.stream);
          trainer.staging->Begin(*before.block, 0);
          trainer.Synchronize(trainer.stream);
          std::memset(trainer.Engine(before.destination_offset), 9, kBytes);
          CHILD_OK(child.cuda().cuStreamWaitValue64(late, gate, 1, CU_STREAM_WAIT_VALUE_GEQ));
          CHILD_STATUS(trainer.staging->Fetch(*before.block, 0, late, std::nullopt));
          CHILD_STATUS(trainer.Finish(before.block));
          // `late` has not read the place yet, and the host does not wait for it.
          const auto after = trainer.Place(second, second, trainer.stream);
          CHILD_CHECK(after.block == before.block);
          CHILD_CHECK(!child.IsDone(trainer.stream));
          CHILD_CHECK(!trainer.staging->WaitUntilQuiet(Clock::now()));
          CHILD_OK(child.cuda().cuStreamWriteValue64(child.NewStream(), gate, 1, 0));
          trainer.Synchronize(trainer.stream);
          CHILD_CHECK(trainer.Look(first)[0] == 9);
          CHILD_CHECK(trainer.Engine(after.source_offset)[0] == 2);
        }) == "");
}

TEST_CASE("DeviceStaging: places of other sizes make room, a full slab is told with its setting") {
  CHECK(RunEmulated({}, [](const Child& child) {
          const Trainer trainer(child);
          const std::uint64_t large = trainer.slab->bytes() - kTimelineBytes - kBytes;
          const auto tensor = Trainer::Describe(large);
          void* const outside = trainer.NewMemory(1, large);
          const auto first =
              CHILD_VALUE(trainer.staging->Place(*tensor, outside, outside, trainer.stream));
          const auto small = trainer.Place(outside, outside, trainer.stream);
          constexpr auto kExhausted = absl::StatusCode::kResourceExhausted;
          CHILD_REFUSED(
              kExhausted, "slab_bytes",
              trainer.staging->Place(*trainer.tensor, outside, outside, trainer.stream).status());
          CHILD_REFUSED(kExhausted, "4096",
                        trainer.staging->Allocate(kBytes, Clock::now()).status());
          trainer.staging->GiveBack(*first.block);
          trainer.staging->GiveBack(*small.block);
          // The same size gets the same place; another one its memory, when streams are through.
          CHILD_CHECK(trainer.Place(outside, outside, trainer.stream).block == small.block);
          trainer.staging->GiveBack(*small.block);
          CHILD_VALUE(trainer.staging->Place(*Trainer::Describe(large + kBytes),
                                             trainer.NewMemory(3, large + kBytes),
                                             trainer.NewMemory(3, large + kBytes), trainer.stream));
        }) == "");
}

TEST_CASE("DeviceStaging: what is no tensor of this GPU is named, source or destination") {
  CHECK(
      RunEmulated({}, [](const Child& child) {
        const Trainer trainer(child);
        constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
        void* const outside = trainer.NewMemory(1);
        std::vector<char> of_host(kBytes);
        const auto refused = [&](const char* text, const void* source, void* destination) {
          CHILD_REFUSED(kInvalid, text,
                        trainer.staging->Place(*trainer.tensor, source, destination, trainer.stream)
                            .status());
        };
        refused("its source: it is not in device memory", of_host.data(), outside);
        refused("its destination: it is not in device memory", outside, of_host.data());
        refused("its source is NULL", nullptr, outside);
        refused("its destination is NULL", outside, nullptr);
        void* const odd = static_cast<char*>(outside) + 2;
        refused("its source is not aligned", odd, odd);
        refused("overlap", outside, static_cast<char*>(outside) + 4);
        void* const beyond = static_cast<char*>(outside) + 4;
        refused("first 4092 of 4096 bytes", beyond, beyond);
        // Some of it is in the slab, or in its timeline.
        void* const end = trainer.memory->PointerAt(trainer.slab->bytes() - 64);
        refused("not in the slab", end, end);
        void* const timeline = trainer.memory->PointerAt(0);
        refused("not in the slab", timeline, timeline);
        int nothing = 0;
        CHILD_REFUSED(kInvalid, "stream is none",
                      trainer.staging->Place(*trainer.tensor, outside, outside, &nothing).status());
        // Nothing has been taken.
        CHILD_VALUE(trainer.memory->Allocate(kSlabBytes - kBytes));
      }) == "");
}

TEST_CASE("DeviceStaging: a tensor of no bytes needs no memory") {
  CHECK(RunEmulated({}, [](const Child& child) {
          const Trainer trainer(child);
          const auto places = CHILD_VALUE(
              trainer.staging->Place(*Trainer::Describe(0), nullptr, nullptr, trainer.stream));
          CHILD_CHECK(places.block == nullptr && places.source_offset == kTimelineBytes);
        }) == "");
}

}  // namespace
}  // namespace ringd::client
