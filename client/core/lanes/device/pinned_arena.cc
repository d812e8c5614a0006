#include "client/core/lanes/device/pinned_arena.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/cuda/device_copy.h"

namespace ringd::client {
namespace {

constexpr std::uint64_t kPageBytes = 4096;
// Locking pages costs a call of the driver's, so each segment is as large as those before it
// together, within these bounds.
constexpr std::uint64_t kLeastSegmentBytes = std::uint64_t{4} << 20;
constexpr std::uint64_t kMostGrowthBytes = std::uint64_t{256} << 20;

constexpr std::uint64_t WholePages(std::uint64_t bytes) noexcept {
  return (std::max<std::uint64_t>(bytes, 1) + kPageBytes - 1) / kPageBytes * kPageBytes;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PinnedArena>> PinnedArena::Create(
    std::shared_ptr<const CudaContext> gpu, Arena& arena) {
  std::unique_ptr<PinnedArena> made(new PinnedArena(std::move(gpu), arena));
  if (!made->gpu_->has_stream_memory_operations()) return made;
  absl::StatusOr<std::unique_ptr<Segment>> values = made->Lock(sizeof(Pair) * kPairs);
  if (!values.ok()) return values.status();
  made->values_ = *std::move(values);
  made->pairs_ = reinterpret_cast<Pair*>(made->values_->memory.data());
  std::memset(static_cast<void*>(made->pairs_), 0, sizeof(Pair) * kPairs);
  return made;
}

PinnedArena::~PinnedArena() {
  const MutexLock lock(mutex_);
  if (values_ != nullptr) segments_.push_back(std::move(values_));
  for (const auto& segment : segments_) {
    const std::uint64_t offset = segment->begin;
    { const RegisteredMemory ends = std::move(segment->memory); }
    arena_.FreeOffset(offset);
  }
}

absl::StatusOr<std::unique_ptr<PinnedArena::Segment>> PinnedArena::Lock(std::uint64_t bytes) {
  const absl::StatusOr<std::uint64_t> offset = arena_.AllocateOffset(bytes);
  if (!offset.ok()) return offset.status();
  // Where no whole pages are free, it would share one with what is registered beside it.
  if (*offset % kPageBytes != 0) {
    arena_.FreeOffset(*offset);
    return absl::ResourceExhaustedError(
        absl::StrCat("the arena has no ", bytes,
                     " bytes in whole pages; raise arena_bytes (RINGD_ARENA_BYTES)"));
  }
  absl::StatusOr<RegisteredMemory> registered =
      RegisteredMemory::Register(gpu_, arena_.AtOffset(*offset), bytes);
  if (!registered.ok()) {
    arena_.FreeOffset(*offset);
    return registered.status();
  }
  return std::make_unique<Segment>(*offset, *std::move(registered));
}

absl::Status PinnedArena::Grow(std::uint64_t bytes) {
  const std::uint64_t least = WholePages(bytes);
  const std::uint64_t wanted =
      std::max(least, std::clamp(bytes_, kLeastSegmentBytes, kMostGrowthBytes));
  absl::StatusOr<std::unique_ptr<Segment>> segment = Lock(wanted);
  if (!segment.ok() && wanted > least) segment = Lock(least);
  if (!segment.ok()) return segment.status();
  bytes_ += (*segment)->memory.bytes();
  segments_.push_back(*std::move(segment));
  return absl::OkStatus();
}

std::optional<std::uint64_t> PinnedArena::TryAllocate(std::uint64_t bytes) {
  for (const auto& segment : segments_) {
    const std::optional<ArenaAllocator::Allocation> found = segment->allocator.Allocate(bytes);
    if (found.has_value()) return segment->begin + found->offset;
  }
  return std::nullopt;
}

absl::StatusOr<std::uint64_t> PinnedArena::AllocateAt(std::uint64_t bytes) {
  const MutexLock lock(mutex_);
  std::optional<std::uint64_t> offset = TryAllocate(bytes);
  if (!offset.has_value()) {
    if (absl::Status status = Grow(bytes); !status.ok()) return status;
    offset = TryAllocate(bytes);
  }
  if (!offset.has_value()) return absl::InternalError("a new segment has no room");
  return *offset;
}

void PinnedArena::FreeAt(std::uint64_t offset) {
  const MutexLock lock(mutex_);
  for (const auto& segment : segments_) {
    if (offset < segment->begin || offset - segment->begin >= segment->memory.bytes()) continue;
    [[maybe_unused]] const bool freed = segment->allocator.Free(offset - segment->begin);
    return;
  }
}

absl::Status PinnedArena::CopyIn(std::uint64_t offset, DeviceAddress from, std::uint64_t bytes,
                                 StreamHandle stream) const {
  return EnqueueCopyToHost(*gpu_, At(offset), from, bytes, stream);
}

absl::Status PinnedArena::CopyOut(DeviceAddress to, std::uint64_t offset, std::uint64_t bytes,
                                  StreamHandle stream) const {
  return EnqueueCopyFromHost(*gpu_, to, At(offset), bytes, stream);
}

DeviceAddress PinnedArena::ReadyAt(std::uint32_t pair) const noexcept {
  return values_->memory.address() + pair * sizeof(Pair) + offsetof(Pair, ready);
}

DeviceAddress PinnedArena::DoneAt(std::uint32_t pair) const noexcept {
  return values_->memory.address() + pair * sizeof(Pair) + offsetof(Pair, done);
}

absl::Status PinnedArena::WaitForPieces(StreamHandle stream, std::uint32_t pair,
                                        std::uint64_t sequence, std::uint32_t pieces) const {
  const TimelineMark mark{DoneAt(pair), ValueOf(sequence, pieces)};
  return WaitAll(*gpu_, stream, std::span(&mark, 1));
}

absl::Status PinnedArena::SignalReady(StreamHandle stream, std::uint32_t pair,
                                      std::uint64_t sequence, std::uint32_t pieces) const {
  const TimelineMark mark{ReadyAt(pair), ValueOf(sequence, pieces)};
  return SignalAll(*gpu_, stream, std::span(&mark, 1));
}

// The GPU's writes before its write of the value can be seen before that (timeline.h); acquire and
// release do the same for this process's threads.
std::uint32_t PinnedArena::ReadyPieces(std::uint32_t pair, std::uint64_t sequence) const noexcept {
  const std::uint64_t found =
      std::atomic_ref(pairs_[pair].ready.value).load(std::memory_order_acquire);
  const std::uint64_t none = ValueOf(sequence, 0);
  return found <= none ? 0
                       : static_cast<std::uint32_t>(std::min<std::uint64_t>(found - none, kAll));
}

void PinnedArena::SetDone(std::uint32_t pair, std::uint64_t sequence,
                          std::uint32_t pieces) noexcept {
  if (!has_values()) return;
  std::atomic_ref(pairs_[pair].done.value)
      .store(ValueOf(sequence, pieces), std::memory_order_release);
}

}  // namespace ringd::client
