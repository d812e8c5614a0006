#include "backends/cuda/registered_memory.h"

#include <sys/mman.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <optional>

#include "backends/cuda/device_copy.h"
#include "backends/cuda/timeline.h"
#include "tests/backends/cuda/opened_gpu.h"

namespace ringd {
namespace {

using emulator::Child;
using emulator::RunEmulated;

constexpr std::size_t kBytes = 8192;

std::byte* MapPages() {
  void* const pages =
      ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return static_cast<std::byte*>(pages);
}

TEST_CASE("RegisteredMemory: copies to and from it keep nobody waiting") {
  CHECK(RunEmulated({}, [](const Child& child) {
          const auto gpu = OpenGpu(child);
          child.UseDevice();
          std::byte* const pages = MapPages();
          const auto memory = CHILD_VALUE(RegisteredMemory::Register(gpu, pages, kBytes));
          const CUdeviceptr tensor = child.NewMemory(kBytes);
          const CUdeviceptr gate = child.NewMemory(8);
          std::memset(child.emulator().alias(tensor, kBytes), 7, kBytes);
          std::memset(child.emulator().alias(gate, 8), 0, 8);
          const CUstream stream = child.NewStream();
          CHILD_OK(child.cuda().cuStreamWaitValue64(stream, gate, 1, CU_STREAM_WAIT_VALUE_GEQ));
          CHILD_STATUS(EnqueueCopyToHost(*gpu, pages, tensor, kBytes, stream));
          CHILD_CHECK(pages[0] == std::byte{0});
          CHILD_OK(child.cuda().cuStreamWriteValue64(child.NewStream(), gate, 1, 0));
          CHILD_OK(child.cuda().cuStreamSynchronize(stream));
          CHILD_CHECK(pages[kBytes - 1] == std::byte{7});
          std::memset(pages, 9, kBytes);
          CHILD_STATUS(EnqueueCopyFromHost(*gpu, tensor, pages, kBytes, stream));
          CHILD_OK(child.cuda().cuStreamSynchronize(stream));
          const auto* const copied =
              static_cast<const char*>(child.emulator().alias(tensor, kBytes));
          CHILD_CHECK(copied[kBytes - 1] == 9);
        }) == "");
}

TEST_CASE("RegisteredMemory: streams write values in it, and wait for the host's") {
  CHECK(RunEmulated({}, [](const Child& child) {
          const auto gpu = OpenGpu(child);
          child.UseDevice();
          std::byte* const pages = MapPages();
          const auto memory = CHILD_VALUE(RegisteredMemory::Register(gpu, pages, kBytes));
          const CUstream stream = child.NewStream();
          const TimelineMark written{memory.address() + 64, 5};
          const TimelineMark awaited{memory.address() + 128, 3};
          CHILD_STATUS(SignalAll(*gpu, stream, std::span(&written, 1)));
          CHILD_STATUS(WaitAll(*gpu, stream, std::span(&awaited, 1)));
          const std::atomic_ref seen(*reinterpret_cast<std::uint64_t*>(pages + 64));
          child.WaitUntil([&] { return seen.load() == 5; }, "the stream's value");
          CHILD_CHECK(!child.IsDone(stream));
          std::atomic_ref(*reinterpret_cast<std::uint64_t*>(pages + 128)).store(3);
          CHILD_OK(child.cuda().cuStreamSynchronize(stream));
        }) == "");
}

TEST_CASE("RegisteredMemory: what it leaves can be registered again, what it has can't") {
  CHECK(RunEmulated({}, [](const Child& child) {
          const auto gpu = OpenGpu(child);
          std::byte* const pages = MapPages();
          {
            auto memory = CHILD_VALUE(RegisteredMemory::Register(gpu, pages, kBytes));
            CHILD_REFUSED(absl::StatusCode::kInternal, "cuMemHostRegister of 4096 bytes",
                          RegisteredMemory::Register(gpu, pages, 4096).status());
            const RegisteredMemory moved = std::move(memory);
            CHILD_CHECK(moved.data() == pages);
          }
          CHILD_VALUE(RegisteredMemory::Register(gpu, pages, kBytes));
        }) == "");
}

}  // namespace
}  // namespace ringd
