// Device memory of one process: what is allocated, where it is mapped, and who may use it.
//
// An allocation is a memfd. Where the host sees it, the pages are PROT_NONE, so that a touch of a
// device pointer ends the process. The emulator reads and writes it by an alias elsewhere.
#ifndef RINGD_TESTS_GPU_EMULATOR_CUDA_DEVICE_MEMORY_H_
#define RINGD_TESTS_GPU_EMULATOR_CUDA_DEVICE_MEMORY_H_

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "proto/base/mutex.h"
#include "proto/base/unique_fd.h"
#include "tests/gpu/emulator/cuda/machine.h"

namespace ringd::emulator {

constexpr std::size_t kGranularity = std::size_t{2} << 20;

// Backing memory. Lives as long as a handle or a mapping needs it.
class Allocation {
 public:
  // Null if the device has less than `bytes` left. `bytes` is rounded up to whole granules.
  static std::shared_ptr<Allocation> Create(Machine& machine, int device, std::size_t bytes,
                                            bool exportable);
  // The allocation behind a descriptor that another process exported; null if it is none.
  static std::shared_ptr<Allocation> Import(int descriptor);
  // Host memory that CUDA knows; `owned` is unmapped with it.
  static std::shared_ptr<Allocation> OfHost(void* memory, std::size_t bytes, bool owned);
  ~Allocation();
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;

  int device() const { return device_; }  // -1: the host
  std::size_t bytes() const { return bytes_; }
  char* alias() const { return alias_; }
  bool exportable() const { return exportable_; }
  int descriptor() const { return descriptor_.get(); }

 private:
  Allocation() = default;

  Machine* machine_ = nullptr;  // not null: the device's memory is this process's to give back
  UniqueFd descriptor_;
  int device_ = -1;
  std::size_t bytes_ = 0;
  char* alias_ = nullptr;
  bool exportable_ = false;
  bool unmaps_alias_ = true;
};

enum class MappingKind { kAllocated, kMapped, kHostAllocated, kHostRegistered };

struct Mapping {
  CUdeviceptr begin = 0;
  std::size_t bytes = 0;
  MappingKind kind = MappingKind::kAllocated;
  std::shared_ptr<Allocation> allocation;
  unsigned accessible_by = 0;  // a bit for each device
  int context_device = 0;      // of the context in which it was made
  bool has_device_pointer = true;
};

// Part of a mapping, and what keeps its bytes alive.
struct View {
  char* alias = nullptr;
  Mapping mapping;
};

constexpr int kAnyDevice = -1;

// Thread safety: all methods on any thread. Addresses are never used twice, so a freed pointer
// stays wrong.
class AddressSpace {
 public:
  // Reserves and maps `bytes` of it at once. 0 if the process has no addresses left.
  CUdeviceptr Add(std::shared_ptr<Allocation> allocation, std::size_t bytes, MappingKind kind,
                  unsigned accessible_by, int context_device);
  // Host memory at its own address.
  void AddHost(std::shared_ptr<Allocation> allocation, int context_device, bool has_device_pointer);
  // The mapping that begins at `begin`, if it is of that kind: gone. False if there is none.
  bool Remove(CUdeviceptr begin, MappingKind kind);
  void RemoveOfContext(int device);

  CUresult Reserve(CUdeviceptr* begin, std::size_t bytes);
  CUresult Unreserve(CUdeviceptr begin, std::size_t bytes);
  CUresult Map(CUdeviceptr begin, std::size_t bytes, std::shared_ptr<Allocation> allocation,
               int context_device);
  CUresult Unmap(CUdeviceptr begin, std::size_t bytes);
  CUresult SetAccess(CUdeviceptr begin, std::size_t bytes, int device, bool may);
  // `device` may use what cuMemAlloc made in the context of `of_device`, now and later.
  void AllowPeer(int device, int of_device);

  // Null alias unless the bytes lie in one mapping that `device` may use.
  View Find(CUdeviceptr begin, std::size_t bytes, int device) const;
  // Whether CUDA has page-locked these bytes of the host.
  bool IsPageLocked(const void* memory, std::size_t bytes) const;
  // The registered or allocated host memory around `memory`.
  View FindHost(const void* memory) const;

 private:
  const Mapping* FindMapping(CUdeviceptr begin, std::size_t bytes) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Overlaps(CUdeviceptr begin, std::size_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  std::map<CUdeviceptr, std::size_t> reserved_ ABSL_GUARDED_BY(mutex_);
  std::map<CUdeviceptr, Mapping> mappings_ ABSL_GUARDED_BY(mutex_);
  // Which devices may use what cuMemAlloc makes on a device.
  unsigned peers_[kMaxDevices] ABSL_GUARDED_BY(mutex_) = {};
};

}  // namespace ringd::emulator

#endif  // RINGD_TESTS_GPU_EMULATOR_CUDA_DEVICE_MEMORY_H_
