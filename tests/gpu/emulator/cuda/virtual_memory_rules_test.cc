// Rules about CUDA's virtual memory management. README.md names the documents.
#include <sys/mman.h>

#include <catch2/catch.hpp>
#include <string>

#include "tests/gpu/emulator/cuda/emulated_process.h"

namespace ringd::emulator {
namespace {

constexpr std::size_t kGranule = std::size_t{2} << 20;

CUmemAllocationProp Properties(int device, CUmemAllocationHandleType type) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = type;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
  return properties;
}

TEST_CASE("Emulated VMM: sizes are whole granules, and devices are there") {
  CHECK(RunEmulated({}, [](const Child& child) {
          child.UseDevice();
          const auto here = Properties(0, CU_MEM_HANDLE_TYPE_NONE);
          const auto elsewhere = Properties(3, CU_MEM_HANDLE_TYPE_NONE);
          std::size_t granularity = 0;
          CHILD_OK(child.cuda().cuMemGetAllocationGranularity(&granularity, &here,
                                                              CU_MEM_ALLOC_GRANULARITY_MINIMUM));
          CHILD_CHECK(granularity == kGranule);
          CUmemGenericAllocationHandle handle = 0;
          CUdeviceptr memory = 0;
          CHILD_CUDA(CUDA_ERROR_INVALID_VALUE,
                     child.cuda().cuMemCreate(&handle, kGranule + 4096, &here, 0));
          CHILD_CUDA(CUDA_ERROR_INVALID_VALUE,
                     child.cuda().cuMemCreate(&handle, kGranule, &elsewhere, 0));
          CHILD_CUDA(CUDA_ERROR_INVALID_VALUE,
                     child.cuda().cuMemAddressReserve(&memory, 4096, 0, 0, 0));
        }) == "");
}

TEST_CASE(
    "Emulated VMM: mapped memory is nobody's before cuMemSetAccess, and a new map forgets it") {
  CHECK(RunEmulated({}, [](const Child& child) {
          child.UseDevice();
          const CUstream stream = child.NewStream();
          CUmemGenericAllocationHandle handle = 0;
          const CUdeviceptr memory = child.MapMemory(kGranule, &handle);
          CHILD_OK(child.cuda().cuMemsetD8Async(memory, 1, 64, stream));
          CHILD_OK(child.cuda().cuStreamSynchronize(stream));
          CHILD_OK(child.cuda().cuMemUnmap(memory, kGranule));
          CHILD_OK(child.cuda().cuMemMap(memory, kGranule, 0, handle, 0));
          CHILD_CUDA(CUDA_ERROR_INVALID_VALUE, child.cuda().cuMemsetD8Async(memory, 1, 64, stream));
          CHILD_CUDA(CUDA_ERROR_INVALID_VALUE,
                     child.cuda().cuStreamWriteValue64(stream, memory, 1, 0));
        }) == "");
}

TEST_CASE("Emulated VMM: a kernel that uses memory without access is fatal") {
  CHECK(RunEmulated({}, [](const Child& child) {
          child.UseDevice();
          const CUstream stream = child.NewStream();
          CUmemGenericAllocationHandle handle = 0;
          CUdeviceptr memory = child.MapMemory(kGranule, &handle);
          CHILD_OK(child.cuda().cuMemUnmap(memory, kGranule));
          CHILD_OK(child.cuda().cuMemMap(memory, kGranule, 0, handle, 0));
          std::uint64_t one = 1;
          void* parameters[] = {&memory, &one, &one};
          CHILD_OK(child.cuda().cuLaunchKernel(child.LoadKernel("fill"), 1, 1, 1, 1, 1, 1, 0,
                                               stream, parameters, nullptr));
          CHILD_CUDA(CUDA_ERROR_ILLEGAL_ADDRESS, child.cuda().cuStreamSynchronize(stream));
        }) == "");
}

TEST_CASE("Emulated VMM: maps go into reserved addresses that are free") {
  CHECK(RunEmulated({}, [](const Child& child) {
          child.UseDevice();
          CUmemGenericAllocationHandle handle = 0;
          const CUdeviceptr memory = child.MapMemory(kGranule, &handle);
          CHILD_CUDA(CUDA_ERROR_INVALID_VALUE,
                     child.cuda().cuMemMap(memory, kGranule, 0, handle, 0));
          CHILD_CUDA(CUDA_ERROR_INVALID_VALUE,
                     child.cuda().cuMemMap(memory + kGranule, kGranule, 0, handle, 0));
          CUdeviceptr room = 0;
          CHILD_OK(child.cuda().cuMemAddressReserve(&room, 2 * kGranule, 0, 0, 0));
          // Larger than the allocation; not from its beginning; no such handle.
          CHILD_CUDA(CUDA_ERROR_INVALID_VALUE,
                     child.cuda().cuMemMap(room, 2 * kGranule, 0, handle, 0));
          CHILD_CUDA(CUDA_ERROR_INVALID_VALUE,
                     child.cuda().cuMemMap(room, kGranule, kGranule, handle, 0));
          CHILD_CUDA(CUDA_ERROR_INVALID_VALUE,
                     child.cuda().cuMemMap(room, kGranule, 0, handle + 1, 0));
        }) == "");
}

TEST_CASE("Emulated VMM: what is mapped is unmapped whole, before its addresses are freed") {
  CHECK(RunEmulated({}, [](const Child& child) {
          child.UseDevice();
          CUmemGenericAllocationHandle handle = 0;
          const CUdeviceptr memory = child.MapMemory(2 * kGranule, &handle);
          CHILD_CUDA(CUDA_ERROR_INVALID_VALUE, child.cuda().cuMemUnmap(memory, kGranule));
          CHILD_CUDA(CUDA_ERROR_INVALID_VALUE, child.cuda().cuMemFree(memory));
          CHILD_CUDA(CUDA_ERROR_INVALID_VALUE, child.cuda().cuMemAddressFree(memory, 2 * kGranule));
          CHILD_OK(child.cuda().cuMemUnmap(memory, 2 * kGranule));
          CHILD_CUDA(CUDA_ERROR_INVALID_VALUE, child.cuda().cuMemAddressFree(memory, kGranule));
          CHILD_OK(child.cuda().cuMemAddressFree(memory, 2 * kGranule));
        }) == "");
}

TEST_CASE("Emulated VMM: memory lives until the handle and the last map are gone") {
  CHECK(RunEmulated({{"MEMORY_MIB", "2"}}, [](const Child& child) {
          child.UseDevice();
          CUmemGenericAllocationHandle handle = 0;
          const CUdeviceptr memory = child.MapMemory(kGranule, &handle);
          CHILD_OK(child.cuda().cuMemRelease(handle));
          CHILD_CHECK(child.Read(memory) == 0);
          CUdeviceptr other = 0;
          CHILD_CUDA(CUDA_ERROR_OUT_OF_MEMORY, child.cuda().cuMemAlloc(&other, 64));
          CHILD_OK(child.cuda().cuMemUnmap(memory, kGranule));
          CHILD_OK(child.cuda().cuMemAlloc(&other, 64));
          CHILD_CUDA(CUDA_ERROR_INVALID_VALUE, child.cuda().cuMemRelease(handle));
        }) == "");
}

TEST_CASE("Emulated VMM: only what asked for descriptors is exported, only such are imported") {
  CHECK(RunEmulated({}, [](const Child& child) {
          child.UseDevice();
          const auto own = Properties(0, CU_MEM_HANDLE_TYPE_NONE);
          CUmemGenericAllocationHandle handle = 0;
          CHILD_OK(child.cuda().cuMemCreate(&handle, kGranule, &own, 0));
          int descriptor = -1;
          CHILD_CUDA(CUDA_ERROR_INVALID_VALUE,
                     child.cuda().cuMemExportToShareableHandle(
                         &descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
          const int stranger = ::memfd_create("stranger", MFD_CLOEXEC);
          void* const os_handle = reinterpret_cast<void*>(static_cast<std::intptr_t>(stranger));
          CHILD_CUDA(CUDA_ERROR_INVALID_VALUE,
                     child.cuda().cuMemImportFromShareableHandle(
                         &handle, os_handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
        }) == "");
}

}  // namespace
}  // namespace ringd::emulator
