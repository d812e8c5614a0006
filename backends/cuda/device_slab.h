// Memory of a GPU that an engine and a trainer share: one slab for each GPU of a session. The
// engine makes it and hands a descriptor over; tensors that are born in it are reduced where they
// are.
#ifndef RINGD_BACKENDS_CUDA_DEVICE_SLAB_H_
#define RINGD_BACKENDS_CUDA_DEVICE_SLAB_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "backends/cuda/cuda_context.h"
#include "backends/cuda/timeline.h"
#include "proto/base/unique_fd.h"

namespace ringd {

// Memory of the driver's virtual memory management with a timeline in its first bytes, mapped for
// the context's GPU.
//
// Thread safety: one thread at a time; address() and bytes() never change, timeline() any thread.
// Ownership: shares the context; unmaps and gives addresses and memory back when it goes, when what
//   Release has enqueued is done. If the GPU does not do that within a second, all of it stays as
//   it is until the process ends. What else is enqueued for the slab is the caller's matter.
class SlabMapping {
 public:
  // Makes addresses for `handle` (a CUmemGenericAllocationHandle), whose owner it becomes whether
  // it succeeds or not. `bytes` are whole granules.
  // As CudaStatus says.
  static absl::StatusOr<SlabMapping> Map(std::shared_ptr<const CudaContext> context,
                                         std::uint64_t handle, std::size_t bytes);

  SlabMapping(SlabMapping&& other) noexcept;
  SlabMapping& operator=(SlabMapping&& other) noexcept;
  ~SlabMapping() { Unmap(); }

  const std::shared_ptr<const CudaContext>& context() const noexcept { return context_; }
  std::uint64_t handle() const noexcept { return handle_; }
  DeviceAddress address() const noexcept { return address_; }
  std::size_t bytes() const noexcept { return bytes_; }
  // Precondition: it has not been moved from.
  const Timeline& timeline() const noexcept { return *timeline_; }

 private:
  SlabMapping() = default;
  void Unmap() noexcept;

  // Null: nothing is owned.
  std::shared_ptr<const CudaContext> context_;
  std::uint64_t handle_ = 0;
  DeviceAddress address_ = 0;  // 0: there are none
  std::size_t bytes_ = 0;
  bool is_mapped_ = false;
  std::optional<Timeline> timeline_;
};

// The offset of [address, address + bytes) in a slab of `slab_bytes` at `slab`; kInvalidArgument
// unless it lies in it as a whole, behind the timeline.
absl::StatusOr<std::uint64_t> OffsetInSlab(const CudaContext& context, DeviceAddress slab,
                                           std::size_t slab_bytes, DeviceAddress address,
                                           std::size_t bytes);

// The engine's side. Its first kTimelineBytes are the timeline, the rest is for tensors. All bytes
// but those of the timeline's first slot are 0 in the beginning: what was in the memory before is
// another user's.
//
// Thread safety: one thread at a time; timeline() any. Ownership: of the memory, which the
//   trainer's mapping keeps, too: it is free when both have gone.
class DeviceSlab {
 public:
  // `bytes` is what tensors need; timeline and whole granules are added. Blocks until the memory
  // has been cleared. `setting` is the name of what says how large slabs are, for the message.
  //   kInvalidArgument: no bytes, or more than the GPU has.
  //   kResourceExhausted: the GPU has too little left; the message says how much was asked for, how
  //   much is free, on which GPU, and `setting`.
  //   kFailedPrecondition: the GPU has no such memory.
  //   Others as CudaStatus says.
  static absl::StatusOr<DeviceSlab> Create(std::shared_ptr<const CudaContext> context,
                                           std::size_t bytes, absl::string_view setting);

  // A descriptor for ImportedSlab, in this process or another one of the same machine. Whoever has
  // it can read and write the slab. As CudaStatus says.
  absl::StatusOr<UniqueFd> Export() const;

  DeviceAddress address() const noexcept { return mapping_.address(); }
  std::size_t bytes() const noexcept { return mapping_.bytes(); }  // the timeline included
  const Timeline& timeline() const noexcept { return mapping_.timeline(); }
  const CudaContext& context() const noexcept { return *mapping_.context(); }

 private:
  explicit DeviceSlab(SlabMapping mapping) : mapping_(std::move(mapping)) {}

  SlabMapping mapping_;
};

// The trainer's side.
//
// Thread safety and ownership as DeviceSlab.
class ImportedSlab {
 public:
  // `descriptor`, `bytes` (DeviceSlab::bytes) and `uuid` (of the GPU) are what the engine said.
  // Blocks until the timeline's first slot has been read.
  //   kInvalidArgument: `uuid` is not the context's GPU, `descriptor` is none of device memory, the
  //   memory is smaller than `bytes`, or has no timeline of this version.
  //   Others as CudaStatus says.
  static absl::StatusOr<ImportedSlab> Import(std::shared_ptr<const CudaContext> context,
                                             UniqueFd descriptor, std::size_t bytes,
                                             absl::string_view uuid);

  DeviceAddress address() const noexcept { return mapping_.address(); }
  std::size_t bytes() const noexcept { return mapping_.bytes(); }
  const Timeline& timeline() const noexcept { return mapping_.timeline(); }
  const CudaContext& context() const noexcept { return *mapping_.context(); }

  // As OffsetInSlab.
  absl::StatusOr<std::uint64_t> OffsetOf(DeviceAddress address, std::size_t bytes) const {
    return OffsetInSlab(context(), this->address(), this->bytes(), address, bytes);
  }

 private:
  explicit ImportedSlab(SlabMapping mapping) : mapping_(std::move(mapping)) {}

  SlabMapping mapping_;
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_CUDA_DEVICE_SLAB_H_
