// Rules about device memory, host memory and copies. README.md names the documents.
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/gpu/emulator/cuda/emulated_process.h"

namespace ringd::emulator {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

TEST_CASE("Emulated memory: the host dies of touching a device pointer") {
  CHECK(RunEmulated({}, [](const Child& child) {
          child.UseDevice();
          *reinterpret_cast<volatile char*>(child.NewMemory(64)) = 1;
        }) == "killed by signal 11");
  CHECK(RunEmulated({}, [](const Child& child) {
          child.UseDevice();
          CUmemGenericAllocationHandle handle = 0;
          static_cast<void>(*reinterpret_cast<volatile char*>(child.MapMemory(2 * kMiB, &handle)));
        }) == "killed by signal 11");
}

TEST_CASE("Emulated memory: new memory is not zero") {
  CHECK(RunEmulated({}, [](const Child& child) {
          child.UseDevice();
          CUdeviceptr memory = 0;
          CHILD_OK(child.cuda().cuMemAlloc(&memory, 64));
          CHILD_CHECK(child.Read(memory) != 0);
        }) == "");
}

TEST_CASE("Emulated memory: what is freed stays wrong, and is freed once") {
  CHECK(RunEmulated({}, [](const Child& child) {
          child.UseDevice();
          const CUstream stream = child.NewStream();
          const CUdeviceptr freed = child.NewMemory(64);
          CHILD_CUDA(CUDA_ERROR_INVALID_VALUE, child.cuda().cuMemFree(freed + 8));
          CHILD_OK(child.cuda().cuMemFree(freed));
          const CUdeviceptr next = child.NewMemory(64);
          CHILD_CHECK(next != freed);
          CHILD_CUDA(CUDA_ERROR_INVALID_VALUE, child.cuda().cuMemFree(freed));
          CHILD_CUDA(CUDA_ERROR_INVALID_VALUE, child.cuda().cuMemsetD8Async(freed, 0, 64, stream));
          unsigned type = 0;
          CHILD_CUDA(CUDA_ERROR_INVALID_VALUE, child.cuda().cuPointerGetAttribute(
                                                   &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, freed));
        }) == "");
}

TEST_CASE("Emulated memory: a copy past the end is refused") {
  CHECK(RunEmulated({}, [](const Child& child) {
          child.UseDevice();
          const CUstream stream = child.NewStream();
          const CUdeviceptr memory = child.NewMemory(100);
          const CUdeviceptr other = child.NewMemory(200);
          CHILD_OK(child.cuda().cuMemcpyDtoDAsync(memory, other, 100, stream));
          CHILD_CUDA(CUDA_ERROR_INVALID_VALUE,
                     child.cuda().cuMemcpyDtoDAsync(memory, other, 101, stream));
          CHILD_CUDA(CUDA_ERROR_INVALID_VALUE,
                     child.cuda().cuMemsetD8Async(memory + 50, 0, 51, stream));
          CHILD_CUDA(CUDA_ERROR_INVALID_VALUE,
                     child.cuda().cuMemsetD32Async(memory + 2, 0, 1, stream));
        }) == "");
}

TEST_CASE("Emulated memory: a full device says so, and has room again after a free") {
  CHECK(RunEmulated({{"MEMORY_MIB", "8"}}, [](const Child& child) {
          child.UseDevice();
          const CUdeviceptr memory = child.NewMemory(6 * kMiB);
          CUdeviceptr second = 0;
          CHILD_CUDA(CUDA_ERROR_OUT_OF_MEMORY, child.cuda().cuMemAlloc(&second, 3 * kMiB));
          std::size_t free = 0;
          std::size_t total = 0;
          CHILD_OK(child.cuda().cuMemGetInfo(&free, &total));
          CHILD_CHECK(free == 2 * kMiB && total == 8 * kMiB);
          CHILD_OK(child.cuda().cuMemFree(memory));
          CHILD_OK(child.cuda().cuMemAlloc(&second, 8 * kMiB));
        }) == "");
}

TEST_CASE("Emulated memory: cuMemFree waits for the device") {
  CHECK(RunEmulated({}, [](const Child& child) {
          child.UseDevice();
          const CUstream stream = child.NewStream();
          const CUdeviceptr memory = child.NewMemory(64);
          const CUdeviceptr last = child.NewMemory(64);
          for (int i = 0; i < 20; ++i) {
            CHILD_OK(child.cuda().cuMemsetD8Async(memory, 1, 64, stream));
          }
          CHILD_OK(child.cuda().cuMemFree(last));
          CHILD_OK(child.cuda().cuStreamQuery(stream));
          CHILD_CHECK(child.emulator().calls("synchronising") == 1);
        }) == "");
}

TEST_CASE(
    "Emulated memory: a free that waits may hold up other threads, but no store of the host's") {
  for (const bool holds_up : {false, true}) {
    CHECK(RunEmulated({{"FREES_HOLD_UP", holds_up ? "1" : "0"}}, [holds_up](const Child& child) {
            const CUcontext context = child.UseDevice();
            const CUstream stream = child.NewStream();
            const CUstream other = child.NewStream();
            const CUdeviceptr memory = child.NewMemory(64);
            const CUdeviceptr gate = child.NewMemory(8);
            auto* const seen = static_cast<std::uint64_t*>(child.emulator().alias(gate, 8));
            CHILD_OK(child.cuda().cuStreamWaitValue64(stream, gate, 1, CU_STREAM_WAIT_VALUE_GEQ));
            static std::atomic<bool> freed{false};
            static std::atomic<bool> queried{false};
            std::thread([&child, context, memory] {
              child.cuda().cuCtxSetCurrent(context);
              child.cuda().cuMemFree(memory);
              freed = true;
            }).detach();
            ::usleep(300'000);  // it waits by then
            std::thread([&child, context, other] {
              child.cuda().cuCtxSetCurrent(context);
              child.cuda().cuStreamQuery(other);
              queried = true;
            }).detach();
            ::usleep(300'000);
            CHILD_CHECK(!freed);
            CHILD_CHECK(queried != holds_up);
            __atomic_store_n(seen, 1, __ATOMIC_RELEASE);
            child.WaitUntil([] { return freed && queried; }, "both calls");
          }) == "");
  }
}

TEST_CASE("Emulated copies: page-locked memory keeps nobody waiting, other memory does") {
  CHECK(RunEmulated({}, [](const Child& child) {
          child.UseDevice();
          const CUstream stream = child.NewStream();
          const CUdeviceptr memory = child.NewMemory(64);
          const CUdeviceptr gate = child.NewMemory(8);
          void* locked = nullptr;
          CHILD_OK(child.cuda().cuMemHostAlloc(&locked, 64, 0));
          std::memset(locked, 5, 64);
          CHILD_OK(child.cuda().cuStreamWaitValue64(stream, gate, 1, CU_STREAM_WAIT_VALUE_GEQ));
          CHILD_OK(child.cuda().cuMemcpyHtoDAsync(memory, locked, 64, stream));
          // It has not been read yet: what is there later is what counts.
          std::memset(locked, 6, 64);
          CHILD_CHECK(child.emulator().calls("synchronising") == 0);
          CHILD_OK(child.cuda().cuStreamWriteValue64(child.NewStream(), gate, 1, 0));
          CHILD_OK(child.cuda().cuStreamSynchronize(stream));
          CHILD_CHECK(child.Read(memory) == 0x0606060606060606);
          char pageable[64] = {};
          const auto before = child.emulator().calls("synchronising");
          CHILD_OK(child.cuda().cuMemcpyDtoHAsync(pageable, memory, 64, stream));
          CHILD_CHECK(pageable[63] == 6);
          CHILD_CHECK(child.emulator().calls("synchronising") == before + 1);
        }) == "");
}

TEST_CASE("Emulated copies: within a GPU they are the stream's, and memory must still be there") {
  CHECK(RunEmulated({}, [](const Child& child) {
          child.UseDevice();
          const CUstream stream = child.NewStream();
          const CUdeviceptr from = child.NewMemory(64);
          const CUdeviceptr to = child.NewMemory(64);
          CHILD_OK(child.cuda().cuMemsetD8Async(from, 7, 64, stream));
          const auto before = child.emulator().calls("synchronising");
          CHILD_OK(child.cuda().cuMemcpyDtoDAsync(to, from, 64, stream));
          CHILD_CHECK(child.emulator().calls("synchronising") == before);
          CHILD_OK(child.cuda().cuStreamSynchronize(stream));
          CHILD_CHECK(child.Read(to + 56) == 0x0707070707070707);
          CHILD_CUDA(CUDA_ERROR_INVALID_VALUE,
                     child.cuda().cuMemcpyDtoDAsync(to, from + 1, 64, stream));
          CHILD_OK(child.cuda().cuMemFree(from));
          CHILD_CUDA(CUDA_ERROR_INVALID_VALUE,
                     child.cuda().cuMemcpyDtoDAsync(to, from, 64, stream));
        }) == "");
}

TEST_CASE("Emulated host memory: registered once, by its base, and only what is there") {
  CHECK(RunEmulated({}, [](const Child& child) {
          child.UseDevice();
          std::vector<char> memory(3 << 12);
          char* const base = memory.data();
          const unsigned flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
          CHILD_CUDA(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, child.cuda().cuMemHostUnregister(base));
          CHILD_OK(child.cuda().cuMemHostRegister(base, memory.size(), flags));
          CHILD_CUDA(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
                     child.cuda().cuMemHostRegister(base + 64, 64, flags));
          CHILD_CUDA(CUDA_ERROR_INVALID_VALUE, child.cuda().cuMemHostUnregister(base + 64));
          CHILD_OK(child.cuda().cuMemHostUnregister(base));
          const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
          void* const gone = ::mmap(nullptr, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
          ::munmap(gone, page);
          CHILD_CUDA(CUDA_ERROR_INVALID_VALUE, child.cuda().cuMemHostRegister(gone, page, flags));
          const CUdeviceptr of_device = child.NewMemory(64);
          CHILD_CUDA(CUDA_ERROR_INVALID_VALUE,
                     child.cuda().cuMemHostRegister(reinterpret_cast<void*>(of_device), 64, flags));
        }) == "");
}

TEST_CASE("Emulated host memory: the device's pointer to registered memory is another") {
  CHECK(RunEmulated({}, [](const Child& child) {
          child.UseDevice();
          const CUstream stream = child.NewStream();
          alignas(8) static std::uint64_t word = 0;
          CUdeviceptr pointer = 0;
          CHILD_CUDA(CUDA_ERROR_INVALID_VALUE,
                     child.cuda().cuMemHostGetDevicePointer(&pointer, &word, 0));
          CHILD_OK(child.cuda().cuMemHostRegister(&word, 8, CU_MEMHOSTREGISTER_DEVICEMAP));
          CHILD_OK(child.cuda().cuMemHostGetDevicePointer(&pointer, &word, 0));
          CHILD_CUDA(CUDA_ERROR_INVALID_VALUE,
                     child.cuda().cuStreamWriteValue64(stream, reinterpret_cast<CUdeviceptr>(&word),
                                                       3, 0));
          CHILD_OK(child.cuda().cuStreamWriteValue64(stream, pointer, 3, 0));
          CHILD_OK(child.cuda().cuStreamSynchronize(stream));
          CHILD_CHECK(word == 3);
          CHILD_OK(child.cuda().cuMemHostUnregister(&word));
          CHILD_CUDA(CUDA_ERROR_INVALID_VALUE,
                     child.cuda().cuStreamWriteValue64(stream, pointer, 4, 0));
        }) == "");
}

TEST_CASE("Emulated pointers: CUDA says where one points, and nothing of a stranger") {
  CHECK(RunEmulated({{"DEVICES", "2"}}, [](const Child& child) {
          const CUcontext context = child.UseDevice(1);
          const CUdeviceptr memory = child.NewMemory(100);
          unsigned type = 0;
          int device = -1;
          std::size_t bytes = 0;
          CUdeviceptr base = 0;
          CUcontext owner = nullptr;
          const auto get = [&](void* data, CUpointer_attribute attribute) {
            return child.cuda().cuPointerGetAttribute(data, attribute, memory + 40);
          };
          CHILD_OK(get(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE));
          CHILD_OK(get(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL));
          CHILD_OK(get(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE));
          CHILD_OK(get(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR));
          CHILD_OK(get(&owner, CU_POINTER_ATTRIBUTE_CONTEXT));
          CHILD_CHECK(type == CU_MEMORYTYPE_DEVICE && device == 1 && bytes == 100);
          CHILD_CHECK(base == memory && owner == context);
          CHILD_CUDA(CUDA_ERROR_INVALID_VALUE, get(&base, CU_POINTER_ATTRIBUTE_HOST_POINTER));
          CHILD_CUDA(CUDA_ERROR_INVALID_VALUE,
                     child.cuda().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                                        reinterpret_cast<CUdeviceptr>(&type)));
          CHILD_CUDA(CUDA_ERROR_NOT_FOUND, child.cuda().cuMemGetAddressRange(&base, &bytes, 4096));
          CHILD_OK(child.cuda().cuMemFree(memory));
          CHILD_CUDA(CUDA_ERROR_INVALID_VALUE, get(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE));
          CHILD_CUDA(CUDA_ERROR_NOT_FOUND,
                     child.cuda().cuMemGetAddressRange(&base, &bytes, memory + 40));
        }) == "");
}

}  // namespace
}  // namespace ringd::emulator
