#include "backends/cuda/device_slab.h"

#include <algorithm>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "backends/cuda/cuda_driver.h"
#include "backends/cuda/memory_properties.h"

namespace ringd {
namespace {

using std::chrono::seconds;

// For clearing or reading a slab, behind whatever the GPU is at.
constexpr seconds kSetUpPatience{30};
constexpr seconds kUnmapPatience{1};

std::string Mebibytes(std::uint64_t bytes) { return absl::StrCat(bytes >> 20, " MiB"); }

absl::Status OutOfMemory(const CudaContext& context, std::size_t bytes, absl::string_view setting) {
  std::size_t free = 0;
  std::size_t total = 0;
  std::string left;
  if (context.driver().cuMemGetInfo(&free, &total) == CUDA_SUCCESS) {
    left = absl::StrCat(", of which ", Mebibytes(free), " are free");
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("GPU ", context.uuid(), " has no ", Mebibytes(bytes), " for a slab: it has ",
                   Mebibytes(total), left, "; `", setting, "` says how much a slab takes"));
}

}  // namespace

absl::StatusOr<SlabMapping> SlabMapping::Map(std::shared_ptr<const CudaContext> context,
                                             std::uint64_t handle, std::size_t bytes) {
  SlabMapping mapping;
  mapping.context_ = context;
  mapping.handle_ = handle;
  mapping.bytes_ = bytes;
  if (auto status = MapForGpu(*context, handle, bytes, &mapping.address_, &mapping.is_mapped_);
      !status.ok()) {
    return status;
  }
  mapping.timeline_.emplace(std::move(context), mapping.address_);
  return mapping;
}

SlabMapping::SlabMapping(SlabMapping&& other) noexcept
    : context_(std::move(other.context_)),
      handle_(other.handle_),
      address_(other.address_),
      bytes_(other.bytes_),
      is_mapped_(other.is_mapped_),
      timeline_(std::move(other.timeline_)) {}

SlabMapping& SlabMapping::operator=(SlabMapping&& other) noexcept {
  if (this == &other) return *this;
  Unmap();
  context_ = std::move(other.context_);
  handle_ = other.handle_;
  address_ = other.address_;
  bytes_ = other.bytes_;
  is_mapped_ = other.is_mapped_;
  timeline_ = std::move(other.timeline_);
  return *this;
}

void SlabMapping::Unmap() noexcept {
  if (context_ == nullptr) return;
  const std::shared_ptr<const CudaContext> context = std::move(context_);
  const CudaDriver& cuda = context->driver();
  if (timeline_) {
    const absl::Status released = timeline_->WaitReleased(Clock::now() + kUnmapPatience);
    timeline_.reset();
    // A GPU that still writes must not find another one's memory there.
    if (absl::IsDeadlineExceeded(released)) return;
  }
  if (is_mapped_) cuda.cuMemUnmap(address_, bytes_);
  if (address_ != 0) cuda.cuMemAddressFree(address_, bytes_);
  cuda.cuMemRelease(handle_);
}

absl::StatusOr<DeviceSlab> DeviceSlab::Create(std::shared_ptr<const CudaContext> context,
                                              std::size_t bytes, absl::string_view setting) {
  const CudaDriver& cuda = context->driver();
  const ScopedContext current(*context);
  if (!current.status().ok()) return current.status();
  const CUmemAllocationProp properties = ExportableOn(*context);
  std::size_t there = 0;
  if (auto status =
          CudaStatus(cuda, "cuDeviceTotalMem", cuda.cuDeviceTotalMem(&there, context->ordinal()));
      !status.ok()) {
    return status;
  }
  if (bytes == 0 || bytes > there) {
    return absl::InvalidArgumentError(
        absl::StrCat("a slab of ", bytes, " bytes on GPU ", context->uuid(), ", which has ",
                     Mebibytes(there), "; `", setting, "` says how much a slab takes"));
  }
  const auto whole = WholeGranules(*context, properties, kTimelineBytes + bytes);
  if (!whole.ok()) return whole.status();
  const std::size_t all = *whole;
  CUmemGenericAllocationHandle handle = 0;
  const CUresult created = cuda.cuMemCreate(&handle, all, &properties, 0);
  if (created == CUDA_ERROR_OUT_OF_MEMORY) return OutOfMemory(*context, all, setting);
  if (auto status = CudaStatus(cuda, "cuMemCreate", created); !status.ok()) return status;
  auto mapping = SlabMapping::Map(context, handle, all);
  if (!mapping.ok()) return mapping.status();
  // The memory may have another user's bytes (Driver API: memory is not cleared).
  const auto stream = CudaStream::Create(context);
  if (!stream.ok()) return stream.status();
  auto* const on = static_cast<CUstream>(stream->handle());
  absl::Status status =
      CudaStatus(cuda, "cuMemsetD8Async", cuda.cuMemsetD8Async(mapping->address(), 0, all, on));
  if (status.ok()) {
    status = CudaStatus(
        cuda, "cuMemcpyHtoDAsync",
        cuda.cuMemcpyHtoDAsync(mapping->address(), &kTimelineMagic, sizeof kTimelineMagic, on));
  }
  if (status.ok()) status = stream->WaitIdle(Clock::now() + kSetUpPatience);
  if (!status.ok()) return status;
  return DeviceSlab(*std::move(mapping));
}

absl::StatusOr<UniqueFd> DeviceSlab::Export() const {
  const CudaDriver& cuda = context().driver();
  int descriptor = -1;
  if (auto status = CudaStatus(
          cuda, "cuMemExportToShareableHandle",
          cuda.cuMemExportToShareableHandle(&descriptor, mapping_.handle(),
                                            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
      !status.ok()) {
    return status;
  }
  return UniqueFd(descriptor);
}

absl::StatusOr<ImportedSlab> ImportedSlab::Import(std::shared_ptr<const CudaContext> context,
                                                  UniqueFd descriptor, std::size_t bytes,
                                                  absl::string_view uuid) {
  if (uuid != context->uuid()) {
    return absl::InvalidArgumentError(absl::StrCat("the slab is on GPU ", uuid, ", and GPU ",
                                                   context->ordinal(), " of this process is ",
                                                   context->uuid()));
  }
  const CudaDriver& cuda = context->driver();
  const ScopedContext current(*context);
  if (!current.status().ok()) return current.status();
  const auto whole = WholeGranules(*context, ExportableOn(*context), bytes);
  if (!whole.ok()) return whole.status();
  if (bytes <= kTimelineBytes || bytes != *whole) {
    return absl::InvalidArgumentError(absl::StrCat("no slab has ", bytes, " bytes"));
  }
  const auto refuse = [bytes](const absl::Status& status) {
    return absl::InvalidArgumentError(
        absl::StrCat("the descriptor is none of a slab of ", bytes, " bytes: ", status.message()));
  };
  CUmemGenericAllocationHandle handle = 0;
  const CUresult imported = cuda.cuMemImportFromShareableHandle(
      &handle,
      reinterpret_cast<void*>(  // NOLINT(performance-no-int-to-ptr): CUDA's interface
          static_cast<std::intptr_t>(descriptor.get())),
      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  if (auto status = CudaStatus(cuda, "cuMemImportFromShareableHandle", imported); !status.ok()) {
    return absl::IsInternal(status) ? refuse(status) : status;
  }
  auto mapping = SlabMapping::Map(context, handle, bytes);
  if (!mapping.ok()) {
    return absl::IsInternal(mapping.status()) ? refuse(mapping.status()) : mapping.status();
  }
  const auto stream = CudaStream::Create(context);
  if (!stream.ok()) return stream.status();
  std::uint64_t first = 0;
  absl::Status status = CudaStatus(cuda, "cuMemcpyDtoHAsync",
                                   cuda.cuMemcpyDtoHAsync(&first, mapping->address(), sizeof first,
                                                          static_cast<CUstream>(stream->handle())));
  if (status.ok()) status = stream->WaitIdle(Clock::now() + kSetUpPatience);
  if (!status.ok()) return status;
  if (first != kTimelineMagic) {
    return absl::InvalidArgumentError(
        absl::StrCat("the slab has no timeline of this ringd's version: 0x", absl::Hex(first),
                     " in place of 0x", absl::Hex(kTimelineMagic)));
  }
  return ImportedSlab(*std::move(mapping));
}

absl::StatusOr<std::uint64_t> OffsetInSlab(const CudaContext& context, DeviceAddress slab,
                                           std::size_t slab_bytes, DeviceAddress address,
                                           std::size_t bytes) {
  const std::uint64_t offset = address - slab;
  if (address < slab + kTimelineBytes || offset > slab_bytes || bytes > slab_bytes - offset) {
    return absl::InvalidArgumentError(
        absl::StrCat(bytes, " bytes at 0x", absl::Hex(address), " are not in the slab on GPU ",
                     context.uuid(), ", which has tensors from 0x",
                     absl::Hex(slab + kTimelineBytes), " to 0x", absl::Hex(slab + slab_bytes)));
  }
  return offset;
}

}  // namespace ringd
