#include "backends/cuda/device_copy.h"

#include <catch2/catch.hpp>
#include <cstring>

#include "backends/cuda/cuda_stream.h"
#include "tests/backends/cuda/opened_gpu.h"

namespace ringd {
namespace {

using emulator::Child;
using emulator::RunEmulated;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr std::size_t kGranule = std::size_t{2} << 20;

TEST_CASE("CheckOnDevice: all of a range is this GPU's memory, and is there") {
  CHECK(RunEmulated({{"DEVICES", "2"}}, [](const Child& child) {
          child.UseDevice(1);
          const CUdeviceptr of_other = child.NewMemory(100);
          child.UseDevice(0);
          const auto gpu = OpenGpu(child, 0);
          const CUdeviceptr memory = child.NewMemory(100);
          CHILD_STATUS(CheckOnDevice(*gpu, memory, 100));
          CHILD_STATUS(CheckOnDevice(*gpu, memory + 40, 60));
          CHILD_REFUSED(kInvalid, "first 60 of 61 bytes", CheckOnDevice(*gpu, memory + 40, 61));
          CHILD_REFUSED(kInvalid, "GPU 1, and this context has opened GPU 0",
                        CheckOnDevice(*gpu, of_other, 8));
          CHILD_REFUSED(kInvalid, "beyond all addresses", CheckOnDevice(*gpu, memory, UINT64_MAX));
          char word[8] = {};
          CHILD_REFUSED(kInvalid, "the host's, or freed",
                        CheckOnDevice(*gpu, reinterpret_cast<DeviceAddress>(word), 8));
          void* locked = nullptr;
          CHILD_OK(child.cuda().cuMemHostAlloc(&locked, 64, 0));
          CHILD_REFUSED(kInvalid, "page-locked memory of the host",
                        CheckOnDevice(*gpu, reinterpret_cast<DeviceAddress>(locked), 64));
          CHILD_OK(child.cuda().cuMemFree(memory));
          CHILD_REFUSED(kInvalid, "the host's, or freed", CheckOnDevice(*gpu, memory, 100));
        }) == "");
}

TEST_CASE("CheckOnDevice: memory that was mapped piece by piece is one range") {
  CHECK(RunEmulated({}, [](const Child& child) {
          child.UseDevice();
          const auto gpu = OpenGpu(child);
          CUmemGenericAllocationHandle handles[2] = {};
          for (CUmemGenericAllocationHandle& handle : handles) {
            child.MapMemory(kGranule, &handle);
          }
          CUdeviceptr base = 0;
          CHILD_OK(child.cuda().cuMemAddressReserve(&base, 3 * kGranule, 0, 0, 0));
          CUmemAccessDesc access{};
          access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
          access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
          for (std::size_t i = 0; i < 2; ++i) {
            const CUdeviceptr at = base + i * kGranule;
            CHILD_OK(child.cuda().cuMemMap(at, kGranule, 0, handles[i], 0));
            CHILD_OK(child.cuda().cuMemSetAccess(at, kGranule, &access, 1));
          }
          CHILD_STATUS(CheckOnDevice(*gpu, base + 8, 2 * kGranule - 8));
          CHILD_REFUSED(kInvalid, "first 4194304", CheckOnDevice(*gpu, base, 2 * kGranule + 1));
        }) == "");
}

TEST_CASE("EnqueueCopy: copies in the stream's order; a stream that is none is told") {
  CHECK(RunEmulated({}, [](const Child& child) {
          child.UseDevice();
          const auto gpu = OpenGpu(child);
          const CUstream stream = child.NewStream();
          const CUdeviceptr from = child.NewMemory(64);
          const CUdeviceptr to = child.NewMemory(64);
          const CUdeviceptr gate = child.NewMemory(8);
          std::memset(child.emulator().alias(gate, 8), 0, 8);
          CHILD_OK(child.cuda().cuStreamWaitValue64(stream, gate, 1, CU_STREAM_WAIT_VALUE_GEQ));
          CHILD_OK(child.cuda().cuMemsetD8Async(from, 5, 64, stream));
          CHILD_STATUS(EnqueueCopy(*gpu, to, from, 64, stream));
          CHILD_CHECK(child.Read(to) != 0x0505050505050505);
          CHILD_OK(child.cuda().cuStreamWriteValue64(child.NewStream(), gate, 1, 0));
          CHILD_OK(child.cuda().cuStreamSynchronize(stream));
          CHILD_CHECK(child.Read(to) == 0x0505050505050505);
          int nothing = 0;
          CHILD_REFUSED(kInvalid, "stream is none", EnqueueCopy(*gpu, to, from, 64, &nothing));
        }) == "");
}

TEST_CASE("CudaEvent: holds another stream up until its own has come there") {
  CHECK(RunEmulated({}, [](const Child& child) {
          child.UseDevice();
          const auto gpu = OpenGpu(child);
          const CUstream first = child.NewStream();
          const CUstream second = child.NewStream();
          const CUdeviceptr gate = child.NewMemory(8);
          std::memset(child.emulator().alias(gate, 8), 0, 8);
          const CudaEvent event = CHILD_VALUE(CudaEvent::Create(gpu));
          // Nothing was recorded.
          CHILD_STATUS(event.HoldUp(second));
          CHILD_OK(child.cuda().cuStreamSynchronize(second));
          CHILD_OK(child.cuda().cuStreamWaitValue64(first, gate, 1, CU_STREAM_WAIT_VALUE_GEQ));
          CHILD_STATUS(event.Record(first));
          CHILD_STATUS(event.HoldUp(second));
          CHILD_CHECK(!child.IsDone(second));
          CHILD_OK(child.cuda().cuStreamWriteValue64(child.NewStream(), gate, 1, 0));
          CHILD_OK(child.cuda().cuStreamSynchronize(second));
          int nothing = 0;
          CHILD_REFUSED(kInvalid, "stream is none", event.HoldUp(&nothing));
        }) == "");
}

}  // namespace
}  // namespace ringd
