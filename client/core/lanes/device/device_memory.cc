#include "client/core/lanes/device/device_memory.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backends/cuda/cuda_stream.h"
#include "backends/cuda/device_copy.h"
#include "backends/cuda/timeline.h"
#include "proto/shm/submission.h"

namespace ringd::client {

absl::StatusOr<std::shared_ptr<const CudaContext>> DeviceMemory::OpenGpu(
    const std::string& cuda_library, int ordinal) {
  absl::StatusOr<std::shared_ptr<const CudaDriver>> driver = OpenCudaDriver(cuda_library);
  if (!driver.ok()) return driver.status();
  return CudaContext::Open(*std::move(driver), ordinal);
}

absl::StatusOr<std::unique_ptr<DeviceMemory>> DeviceMemory::Import(
    std::shared_ptr<const CudaContext> gpu, SlabInbox::Slab slab) {
  if (!slab.descriptor.valid()) {
    return absl::InternalError("ringd sent no descriptor with the device memory");
  }
  if (slab.notice.slab_bytes <= kTimelineBytes) {
    return absl::InternalError("ringd's device memory has no room for tensors");
  }
  const std::string uuid = gpu->uuid();
  absl::StatusOr<ImportedSlab> imported =
      ImportedSlab::Import(gpu, std::move(slab.descriptor), slab.notice.slab_bytes, uuid);
  if (!imported.ok()) return imported.status();
  const DeviceAddress address = imported->address();
  const std::uint64_t bytes = imported->bytes();
  Timeline timeline = imported->timeline();
  return std::unique_ptr<DeviceMemory>(
      new DeviceMemory(std::move(gpu), *std::move(imported), address, bytes, std::move(timeline)));
}

absl::StatusOr<std::unique_ptr<DeviceMemory>> DeviceMemory::Use(
    std::shared_ptr<const CudaContext> gpu, DeviceAddress address, std::uint64_t bytes) {
  if (bytes <= kTimelineBytes) {
    return absl::InternalError("this process's device memory has no room for tensors");
  }
  Timeline timeline(gpu, address);
  return std::unique_ptr<DeviceMemory>(
      new DeviceMemory(std::move(gpu), std::nullopt, address, bytes, std::move(timeline)));
}

DeviceMemory::DeviceMemory(std::shared_ptr<const CudaContext> gpu, std::optional<ImportedSlab> slab,
                           DeviceAddress address, std::uint64_t bytes, Timeline timeline)
    : gpu_(std::move(gpu)),
      imported_(std::move(slab)),
      address_(address),
      bytes_(bytes),
      timeline_(std::move(timeline)),
      allocator_(bytes_ - kTimelineBytes) {}

absl::StatusOr<void*> DeviceMemory::Allocate(std::uint64_t bytes) {
  const absl::StatusOr<std::uint64_t> offset = AllocateAt(bytes);
  if (!offset.ok()) return offset.status();
  return PointerAt(*offset);
}

absl::StatusOr<std::uint64_t> DeviceMemory::AllocateAt(std::uint64_t bytes) {
  const MutexLock lock(mutex_);
  const std::optional<ArenaAllocator::Allocation> found = allocator_.Allocate(bytes);
  if (!found.has_value()) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "no ", bytes, " bytes are free in one piece in this rank's device memory, of which ",
        allocator_.used_bytes(), " of ", allocator_.capacity(),
        " are in use: wait for operations on tensors that are staged there, or ask "
        "ringd_device_open for more (slab_bytes)"));
  }
  return kTimelineBytes + found->offset;
}

bool DeviceMemory::Free(const void* address) {
  const MutexLock lock(mutex_);
  const DeviceAddress first = address_ + kTimelineBytes;
  return DeviceAddressOf(address) >= first && allocator_.Free(DeviceAddressOf(address) - first);
}

absl::StatusOr<std::optional<std::uint64_t>> DeviceMemory::Find(const void* address,
                                                                std::uint64_t bytes) const {
  if (!Touches(address, bytes)) return std::optional<std::uint64_t>();
  const absl::StatusOr<std::uint64_t> offset =
      OffsetInSlab(*gpu_, address_, bytes_, DeviceAddressOf(address), bytes);
  if (!offset.ok()) return offset.status();
  return std::optional(*offset);
}

absl::Status DeviceMemory::CopyIn(std::uint64_t offset, DeviceAddress from, std::uint64_t bytes,
                                  StreamHandle stream) const {
  return EnqueueCopy(*gpu_, AddressAt(offset), from, bytes, stream);
}

absl::Status DeviceMemory::CopyOut(DeviceAddress to, std::uint64_t offset, std::uint64_t bytes,
                                   StreamHandle stream) const {
  return EnqueueCopy(*gpu_, to, AddressAt(offset), bytes, stream);
}

absl::Status DeviceMemory::SignalReady(void* stream, std::uint32_t pair,
                                       std::uint64_t sequence) const {
  return timeline_.Signal(stream, ReadySlot(pair), TimelineValueOf(sequence));
}

bool DeviceMemory::WaitSignalled(const TimelinePairs& pairs, Clock::time_point deadline) const {
  std::vector<TimelineMark> marks;
  for (std::uint32_t pair = 0; pair < kTimelinePairs; ++pair) {
    const std::optional<std::uint64_t> sequence = pairs.LastOf(pair);
    if (!sequence.has_value()) continue;
    const absl::StatusOr<TimelineMark> mark =
        timeline_.At(ReadySlot(pair), TimelineValueOf(*sequence));
    if (mark.ok()) marks.push_back(*mark);
  }
  if (marks.empty()) return true;
  absl::StatusOr<CudaStream> stream = CudaStream::Create(gpu_);
  // A GPU that has failed does nothing any more.
  if (!stream.ok() || !WaitAll(*gpu_, stream->handle(), marks).ok()) return true;
  if (!absl::IsDeadlineExceeded(stream->WaitIdle(deadline))) return true;
  // It waits as long as the other does.
  static_cast<void>(new CudaStream(*std::move(stream)));
  return false;
}

absl::Status DeviceMemory::WaitForResult(StreamHandle stream, std::uint32_t pair,
                                         std::uint64_t sequence) const {
  return timeline_.Wait(stream, DoneSlot(pair), TimelineValueOf(sequence));
}

void DeviceMemory::ReleaseWaits(std::span<const std::uint32_t> pairs) const noexcept {
  std::vector<std::uint32_t> slots;
  for (const std::uint32_t pair : pairs) slots.push_back(DoneSlot(pair));
  static_cast<void>(timeline_.Release(slots));
}

}  // namespace ringd::client
