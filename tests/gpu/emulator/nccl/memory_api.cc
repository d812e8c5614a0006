// NCCL's functions about memory.
#include <cuda.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <thread>

#include "proto/base/mutex.h"
#include "tests/gpu/emulator/nccl/communicator.h"
#include "tests/gpu/emulator/nccl/cuda_access.h"
#include "tests/gpu/emulator/nccl/group.h"
#include "tests/gpu/emulator/nccl/last_error.h"

using namespace ringd;            // NOLINT(google-build-using-namespace)
using namespace ringd::emulator;  // NOLINT(google-build-using-namespace)

namespace {

constexpr std::chrono::microseconds kNap{200};

struct Allocations {
  struct Block {
    CUmemGenericAllocationHandle handle;
    std::size_t bytes;
  };
  Mutex mutex;
  std::map<CUdeviceptr, Block> blocks ABSL_GUARDED_BY(mutex);
};
Allocations& TheAllocations() {
  static Allocations* const allocations = new Allocations;
  return *allocations;
}

CUdeviceptr PointerOf(const void* memory) {
  return static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(memory));
}

// Memory of `device` that can be exported, as NCCL makes it, in whole granules.
CUresult Allocate(const CudaDriver& cuda, int device, Allocations::Block* block,
                  CUdeviceptr* memory) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
  std::size_t granule = 0;
  CUresult result = cuda.cuMemGetAllocationGranularity(&granule, &properties,
                                                       CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
  if (result != CUDA_SUCCESS) return result;
  block->bytes = (block->bytes + granule - 1) / granule * granule;
  result = cuda.cuMemCreate(&block->handle, block->bytes, &properties, 0);
  if (result != CUDA_SUCCESS) return result;
  CUmemAccessDesc access{};
  access.location = properties.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  result = cuda.cuMemAddressReserve(memory, block->bytes, 0, 0, 0);
  if (result == CUDA_SUCCESS) result = cuda.cuMemMap(*memory, block->bytes, 0, block->handle, 0);
  if (result == CUDA_SUCCESS) result = cuda.cuMemSetAccess(*memory, block->bytes, &access, 1);
  if (result != CUDA_SUCCESS) cuda.cuMemRelease(block->handle);
  return result;
}

NcclResult CheckMemory(const Communicator& communicator, const void* memory, std::size_t bytes) {
  if (memory == nullptr || bytes == 0) {
    return Failed(kNcclInvalidArgument, "no memory to register");
  }
  if (CudaAccess::Find()->alias(communicator.device(), PointerOf(memory), bytes) == nullptr) {
    return Failed(kNcclUnhandledCudaError, "that is not memory of the communicator's device");
  }
  return kNcclSuccess;
}

NcclResult Need(const NcclComm* comm, std::shared_ptr<Communicator>* communicator) {
  *communicator = Communicator::Find(comm);
  return *communicator == nullptr ? kNcclInvalidArgument : (*communicator)->CheckReady();
}

NcclResult Deregister(const NcclComm* comm, void* handle) {
  const auto communicator = Communicator::Find(comm);
  if (communicator == nullptr) return kNcclInvalidArgument;
  const auto range = communicator->registered().Remove(handle);
  if (!range) return Failed(kNcclInvalidArgument, "nothing is registered by that handle");
  if (IsMemoryOf(communicator->device(), *range)) return kNcclSuccess;
  return Failed(kNcclUnhandledCudaError, "memory has gone that was still registered");
}

RegisteredRange RangeOf(const void* memory, std::size_t bytes, int flags) {
  const bool is_symmetric = (flags & kNcclWindowSymmetric) != 0;
  return {reinterpret_cast<std::uintptr_t>(memory), bytes, is_symmetric};
}

// NCCL's own switch, of this rank's process.
bool RegistersNothing() {
  const char* const value = std::getenv("NCCL_LOCAL_REGISTER");
  return value != nullptr && *value == '0';
}

bool WaitForAll(const Communicator& communicator, std::atomic<std::uint64_t> RankCell::*counter,
                std::uint64_t round) {
  while (!communicator.world().AllReached(counter, round)) {
    if (communicator.aborted()) return false;
    std::this_thread::sleep_for(kNap);
  }
  return true;
}

// All ranks register together, the same number of bytes with the same flags. Ranks that disagree
// wait for each other without end.
NcclResult MeetForWindow(const Communicator& communicator, std::uint64_t round, std::size_t bytes,
                         int flags) {
  World& world = communicator.world();
  world.own().window_bytes = bytes;
  world.own().window_flags = flags;
  world.own().windows.store(round, std::memory_order_release);
  if (!WaitForAll(communicator, &RankCell::windows, round)) return kNcclInternalError;
  bool agrees = true;
  for (int rank = 0; rank < world.size(); ++rank) {
    const RankCell& cell = world.cell(rank);
    agrees = agrees && cell.window_bytes == bytes && cell.window_flags == flags;
  }
  if (agrees) world.own().windows_read.store(round, std::memory_order_release);
  const bool met = WaitForAll(communicator, &RankCell::windows_read, round);
  return met ? kNcclSuccess : kNcclInternalError;
}

}  // namespace

extern "C" {

NcclResult ncclMemAlloc(void** memory, std::size_t bytes) {
  const CudaAccess* const cuda = CudaAccess::Find();
  if (cuda == nullptr) return kNcclUnhandledCudaError;
  if (memory == nullptr || bytes == 0) return Failed(kNcclInvalidArgument, "no memory wanted");
  const int device = cuda->CurrentDevice();
  Allocations::Block block{0, bytes};
  CUdeviceptr pointer = 0;
  if (device < 0 || Allocate(*cuda->driver, device, &block, &pointer) != CUDA_SUCCESS) {
    return Failed(kNcclUnhandledCudaError, "CUDA gives no memory");
  }
  Allocations& allocations = TheAllocations();
  const MutexLock lock(allocations.mutex);
  allocations.blocks[pointer] = block;
  *memory = reinterpret_cast<void*>(pointer);  // NOLINT(performance-no-int-to-ptr)
  return kNcclSuccess;
}

NcclResult ncclMemFree(void* memory) {
  if (memory == nullptr) return kNcclSuccess;
  Allocations& allocations = TheAllocations();
  const MutexLock lock(allocations.mutex);
  const auto found = allocations.blocks.find(PointerOf(memory));
  if (found == allocations.blocks.end()) {
    return Failed(kNcclInvalidArgument, "that is not memory of ncclMemAlloc");
  }
  const CudaDriver& cuda = *CudaAccess::Find()->driver;
  const auto [pointer, block] = *found;
  allocations.blocks.erase(found);
  const bool is_freed = cuda.cuMemUnmap(pointer, block.bytes) == CUDA_SUCCESS &&
                        cuda.cuMemRelease(block.handle) == CUDA_SUCCESS &&
                        cuda.cuMemAddressFree(pointer, block.bytes) == CUDA_SUCCESS;
  return is_freed ? kNcclSuccess : Failed(kNcclUnhandledCudaError, "CUDA does not free memory");
}

NcclResult ncclCommRegister(const NcclComm* comm, void* memory, std::size_t bytes, void** handle) {
  std::shared_ptr<Communicator> communicator;
  if (const NcclResult result = Need(comm, &communicator); result != kNcclSuccess) return result;
  if (handle == nullptr) return Failed(kNcclInvalidArgument, "no place for the handle");
  const NcclResult checked = CheckMemory(*communicator, memory, bytes);
  if (checked != kNcclSuccess) return checked;
  *handle =
      RegistersNothing() ? nullptr : communicator->registered().Add(RangeOf(memory, bytes, 0));
  return kNcclSuccess;
}

NcclResult ncclCommDeregister(const NcclComm* comm, void* handle) {
  return Deregister(comm, handle);
}

NcclResult ncclCommWindowRegister(NcclComm* comm, void* memory, std::size_t bytes,
                                  NcclWindow** window, int flags) {
  std::shared_ptr<Communicator> communicator;
  if (const NcclResult result = Need(comm, &communicator); result != kNcclSuccess) {
    return Group::Note(result);
  }
  if (window == nullptr || PointerOf(memory) % kNcclWindowAlignment != 0) {
    return Group::Note(Failed(kNcclInvalidArgument, "a window begins at a multiple of 4096"));
  }
  const NcclResult checked = CheckMemory(*communicator, memory, bytes);
  if (checked != kNcclSuccess) return Group::Note(checked);
  const std::uint64_t round = communicator->NextWindow();
  return Group::Submit(communicator, Group::Work::kMeeting, [=] {
    const NcclResult met = MeetForWindow(*communicator, round, bytes, flags);
    if (met != kNcclSuccess) return met;
    void* const handle = communicator->registered().Add(RangeOf(memory, bytes, flags));
    *window = static_cast<NcclWindow*>(handle);
    return kNcclSuccess;
  });
}

NcclResult ncclCommWindowDeregister(NcclComm* comm, NcclWindow* window) {
  return Deregister(comm, window);
}

}  // extern "C"
