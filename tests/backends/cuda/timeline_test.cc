#include "backends/cuda/timeline.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backends/cuda/cuda_driver.h"
#include "backends/cuda/device_slab.h"
#include "tests/backends/cuda/opened_gpu.h"
#include "tests/gpu/emulator/cuda/machine_file.h"

namespace ringd {
namespace {

using emulator::Child;
using emulator::EmulatedProcess;
using emulator::MachineFile;
using emulator::RunEmulated;

constexpr std::size_t kBytes = 1 << 20;
constexpr std::uint64_t kLargest = kTimelineReleased - 1;

DeviceSlab NewSlab(const Child& child, const std::shared_ptr<const CudaContext>& context) {
  return CHILD_VALUE(DeviceSlab::Create(context, kBytes, "slab_bytes"));
}

bool IsIdle(const CudaStream& stream) { return stream.WaitIdle(Clock::time_point()).ok(); }

// Sends what the other process needs for ReceiveSlab.
void SendSlab(const Child& child, const DeviceSlab& slab) {
  const UniqueFd descriptor = CHILD_VALUE(slab.Export());
  child.Send(slab.bytes(), descriptor.get());
}

ImportedSlab ReceiveSlab(const Child& child, const std::shared_ptr<const CudaContext>& context) {
  UniqueFd descriptor;
  const std::uint64_t bytes = child.Receive(&descriptor);
  return CHILD_VALUE(ImportedSlab::Import(context, std::move(descriptor), bytes, context->uuid()));
}

void HandOver(EmulatedProcess& engine, EmulatedProcess& trainer) {
  UniqueFd descriptor;
  const std::uint64_t bytes = engine.Receive(&descriptor);
  trainer.Send(bytes, descriptor.get());
}

TEST_CASE("Timeline: each process's stream waits for the other's, and sees what it wrote") {
  const MachineFile machine;
  EmulatedProcess engine(machine.With(), [](const Child& child) {
    const auto context = OpenGpu(child);
    const ScopedContext scope(*context);
    const DeviceSlab slab = NewSlab(child, context);
    const CudaStream stream = CHILD_VALUE(CudaStream::Create(context));
    SendSlab(child, slab);
    for (std::uint64_t step = 1; step <= 20; ++step) {
      CHILD_STATUS(slab.timeline().Wait(stream.handle(), ReadySlot(0), step));
      // The result is the input, elsewhere.
      CHILD_OK(child.cuda().cuMemcpyDtoDAsync(slab.address() + kTimelineBytes + 4096,
                                              slab.address() + kTimelineBytes, 4096,
                                              static_cast<CUstream>(stream.handle())));
      CHILD_STATUS(slab.timeline().Signal(stream.handle(), DoneSlot(0), step));
    }
    CHILD_STATUS(stream.WaitIdle(Clock::now() + std::chrono::seconds(10)));
  });
  EmulatedProcess trainer(machine.With(), [](const Child& child) {
    const auto context = OpenGpu(child);
    const ScopedContext scope(*context);
    const ImportedSlab slab = ReceiveSlab(child, context);
    const CudaStream stream = CHILD_VALUE(CudaStream::Create(context));
    const DeviceAddress tensor = slab.address() + kTimelineBytes;
    const CUdeviceptr seen = child.NewMemory(20 * 4096);
    auto* const on = static_cast<CUstream>(stream.handle());
    for (std::uint64_t step = 1; step <= 20; ++step) {
      CHILD_OK(child.cuda().cuMemsetD8Async(tensor, static_cast<unsigned char>(step), 4096, on));
      CHILD_STATUS(slab.timeline().Signal(stream.handle(), ReadySlot(0), step));
      CHILD_STATUS(slab.timeline().Wait(stream.handle(), DoneSlot(0), step));
      CHILD_OK(child.cuda().cuMemcpyDtoDAsync(seen + (step - 1) * 4096, tensor + 4096, 4096, on));
    }
    CHILD_STATUS(stream.WaitIdle(Clock::now() + std::chrono::seconds(10)));
    for (std::uint64_t step = 1; step <= 20; ++step) {
      CHILD_CHECK(child.Read(seen + step * 4096 - 8) == step * 0x0101010101010101);
    }
  });
  HandOver(engine, trainer);
  CHECK(engine.Join() == "");
  CHECK(trainer.Join() == "");
}

TEST_CASE("Timeline: the survivor lets go of its own waits when the other has been killed") {
  const MachineFile machine;
  EmulatedProcess engine(machine.With(), [](const Child& child) {
    const DeviceSlab slab = NewSlab(child, OpenGpu(child));
    SendSlab(child, slab);
    child.Receive();
  });
  EmulatedProcess trainer(machine.With(), [](const Child& child) {
    const auto context = OpenGpu(child);
    const ImportedSlab slab = ReceiveSlab(child, context);
    const CudaStream stream = CHILD_VALUE(CudaStream::Create(context));
    CHILD_STATUS(slab.timeline().Wait(stream.handle(), DoneSlot(3), 7));
    child.Send(1);
    child.Receive();
    CHILD_CHECK(!IsIdle(stream));
    const std::uint32_t slots[] = {DoneSlot(3)};
    CHILD_STATUS(slab.timeline().Release(slots));
    CHILD_STATUS(stream.WaitIdle(Clock::now() + std::chrono::seconds(10)));
  });
  HandOver(engine, trainer);
  CHECK(trainer.Receive() == 1);
  engine.Kill();
  CHECK(engine.Join() == "killed by signal 9");
  trainer.Send(1);
  CHECK(trainer.Join() == "");
}

TEST_CASE("Timeline: a release ends every wait, also for the largest value, and later ones") {
  CHECK(RunEmulated({}, [](const Child& child) {
          const auto context = OpenGpu(child);
          const DeviceSlab slab = NewSlab(child, context);
          std::vector<CudaStream> streams;
          for (const std::uint64_t value : {std::uint64_t{1}, kLargest / 2, kLargest}) {
            streams.push_back(CHILD_VALUE(CudaStream::Create(context)));
            CHILD_STATUS(slab.timeline().Wait(streams.back().handle(), DoneSlot(0), value));
          }
          std::this_thread::sleep_for(std::chrono::milliseconds(50));
          for (const CudaStream& stream : streams) CHILD_CHECK(!IsIdle(stream));
          const std::uint32_t slots[] = {DoneSlot(0)};
          CHILD_STATUS(slab.timeline().Release(slots));
          const Clock::time_point deadline = Clock::now() + std::chrono::seconds(20);
          for (const CudaStream& stream : streams) CHILD_STATUS(stream.WaitIdle(deadline));
          CHILD_STATUS(slab.timeline().Wait(streams[0].handle(), DoneSlot(0), kLargest));
          CHILD_STATUS(streams[0].WaitIdle(deadline));
        }) == "");
}

TEST_CASE("Timeline: many marks, of two slabs, are a call for 255 of them") {
  CHECK(RunEmulated({{"MAX_DELAY_US", "0"}}, [](const Child& child) {
          const auto context = OpenGpu(child);
          const DeviceSlab slabs[] = {NewSlab(child, context), NewSlab(child, context)};
          const CudaStream writer = CHILD_VALUE(CudaStream::Create(context));
          const CudaStream reader = CHILD_VALUE(CudaStream::Create(context));
          std::vector<TimelineMark> marks;
          for (std::uint32_t i = 0; i < 300; ++i) {
            marks.push_back(CHILD_VALUE(slabs[i % 2].timeline().At(i + 1, i + 1)));
          }
          CHILD_STATUS(WaitAll(*context, reader.handle(), marks));
          CHILD_STATUS(
              SignalAll(*context, writer.handle(), std::span(marks).first(marks.size() - 1)));
          CHILD_STATUS(writer.WaitIdle(Clock::now() + std::chrono::seconds(10)));
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
          CHILD_CHECK(!IsIdle(reader));
          CHILD_STATUS(SignalAll(*context, writer.handle(), std::span(marks).last(1)));
          CHILD_STATUS(reader.WaitIdle(Clock::now() + std::chrono::seconds(10)));
          CHILD_CHECK(child.Read(slabs[1].address() + 300 * kTimelineSlotBytes) == 300);
          CHILD_CHECK(child.emulator().calls("cuStreamBatchMemOp") == 4);
          CHILD_STATUS(WaitAll(*context, reader.handle(), {}));
        }) == "");
}

TEST_CASE("Timeline: slots, values and streams that are none are refused") {
  CHECK(RunEmulated({{"DEVICES", "2"}}, [](const Child& child) {
          const auto context = OpenGpu(child, 0);
          const DeviceSlab slab = NewSlab(child, context);
          const CudaStream stream = CHILD_VALUE(CudaStream::Create(context));
          const CudaStream other = CHILD_VALUE(CudaStream::Create(OpenGpu(child, 1)));
          const Timeline& timeline = slab.timeline();
          constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
          CHILD_REFUSED(kInvalid, "slot 0", timeline.Signal(stream.handle(), 0, 1));
          CHILD_REFUSED(kInvalid, absl::StrCat("slot ", kTimelineSlots),
                        timeline.Wait(stream.handle(), kTimelineSlots, 1));
          CHILD_REFUSED(kInvalid, "value 0", timeline.Wait(stream.handle(), 2, 0));
          CHILD_REFUSED(kInvalid, "value", timeline.Signal(stream.handle(), 2, kTimelineReleased));
          CHILD_REFUSED(kInvalid, "value", timeline.Wait(stream.handle(), 2, ~std::uint64_t{0}));
          CHILD_REFUSED(kInvalid, context->uuid(), timeline.Signal(other.handle(), 2, 1));
          CHILD_REFUSED(kInvalid, context->uuid(), timeline.Wait(other.handle(), 2, 1));
          const std::uint32_t slots[] = {0};
          CHILD_REFUSED(kInvalid, "slot 0", timeline.Release(slots));
          CHILD_CHECK(child.Read(slab.address()) == kTimelineMagic);
        }) == "");
}

TEST_CASE("Timeline: a GPU without stream memory operations says so") {
  CHECK(RunEmulated({{"STREAM_MEMORY_OPERATIONS", "0"}}, [](const Child& child) {
          const auto context = OpenGpu(child);
          const CudaStream stream = CHILD_VALUE(CudaStream::Create(context));
          const DeviceSlab slab = CHILD_VALUE(DeviceSlab::Create(context, kBytes, "slab_bytes"));
          CHILD_CHECK(child.Read(slab.address()) == kTimelineMagic);
          CHILD_REFUSED(absl::StatusCode::kFailedPrecondition, "stream memory operation",
                        slab.timeline().Signal(stream.handle(), 2, 1));
          const std::uint32_t slots[] = {2};
          CHILD_REFUSED(absl::StatusCode::kFailedPrecondition, "stream memory operation",
                        slab.timeline().Release(slots));
        }) == "");
}

}  // namespace
}  // namespace ringd
