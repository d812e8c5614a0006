#include "client/core/tensors/staging.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "client/core/tensors/direct_reads.h"
#include "client/core/tensors/local_chunks.h"
#include "proto/reduce/reduce.h"

namespace ringd::client {
namespace {

absl::Status Wrong(const Registration& registration, absl::string_view problem) {
  return absl::InvalidArgumentError(
      absl::StrCat("tensor '", registration.description.name, "': ", problem));
}

// Of a block for a tensor of so many: rounded up by an eighth at most, and not by much where caches
// hold little of it.
constexpr std::uint64_t BlockBytes(std::uint64_t bytes) noexcept {
  constexpr std::uint64_t kMostStep = std::uint64_t{256} << 10;
  const std::uint64_t step = std::clamp<std::uint64_t>(std::bit_ceil(bytes) / 16, 1, kMostStep);
  return (bytes + step - 1) / step * step;
}

// Past the caches where the tensor would only push everything else out of them.
void CopyBytes(void* to, const void* from, std::uint64_t bytes) noexcept {
  CopyScaled(DataType::kUint8, to, from, bytes, {}, Streaming::kAuto);
}

bool OverlapInPart(const void* a, const void* b, std::uint64_t bytes) noexcept {
  const auto x = reinterpret_cast<std::uintptr_t>(a);
  const auto y = reinterpret_cast<std::uintptr_t>(b);
  return x != y && (x < y ? y - x : x - y) < bytes;
}

// All bytes but those of `skipped` chunks, of which there are up to 64.
void CopyChunks(void* to, const void* from, std::uint64_t bytes, std::uint64_t chunk_bytes,
                std::uint64_t skipped) noexcept {
  const auto count = static_cast<std::uint32_t>((bytes + chunk_bytes - 1) / chunk_bytes);
  for (std::uint32_t chunk = 0; chunk < count;) {
    const std::uint64_t rest = skipped >> chunk;
    const auto done = static_cast<std::uint32_t>(std::countr_one(rest));
    const auto missing = static_cast<std::uint32_t>(std::countr_zero(rest));
    if (done == 0) {
      const std::uint64_t begin = chunk * chunk_bytes;
      const std::uint64_t end = std::min(bytes, (std::uint64_t{chunk} + missing) * chunk_bytes);
      CopyBytes(static_cast<std::byte*>(to) + begin, static_cast<const std::byte*>(from) + begin,
                end - begin);
    }
    chunk += std::max(done, missing);
  }
}

}  // namespace

Staging::Staging(Arena& arena, StagedCopies* copies) : arena_(arena), copies_(copies) {
  arena_.set_reclaim([this] { return FreeIdleBlocks(); });
}

absl::Status Staging::CheckPointers(const Registration& registration, const void*& source,
                                    void*& destination) {
  if (!registration.sends && !registration.receives) return absl::OkStatus();
  // The root of a broadcast may leave its destination out; a receiver of one has no source.
  if (!registration.sends) source = destination;
  if (!registration.receives && destination == nullptr) destination = const_cast<void*>(source);
  if (source == nullptr) return Wrong(registration, "source is NULL");
  if (destination == nullptr) return Wrong(registration, "destination is NULL");
  if (OverlapInPart(source, destination, registration.bytes)) {
    return Wrong(registration, "source and destination overlap in part");
  }
  return absl::OkStatus();
}

absl::Status Staging::Place(Registration& registration, const void* source, void* destination,
                            Submission& record, OperationEnd& end, DirectUse direct) {
  record.registration = registration.numbers.registration;
  record.element_count = registration.element_count;
  end.registration = &registration;
  if (!registration.sends && !registration.receives) return absl::OkStatus();
  const std::uint64_t bytes = registration.bytes;
  absl::Status status = CheckPointers(registration, source, destination);
  if (!status.ok()) return status;
  const auto usable = [&](const void* address, bool& straddles) {
    const Arena::Position position = arena_.Locate(address, bytes);
    straddles |= position == Arena::Position::kStraddling;
    // ringd wants elements aligned; a view that is not goes the way of ordinary memory.
    return position == Arena::Position::kInside &&
           reinterpret_cast<std::uintptr_t>(address) % registration.element_bytes == 0;
  };
  bool straddles = false;
  const bool source_inside = usable(source, straddles);
  const bool destination_inside = usable(destination, straddles);
  if (straddles) {
    return Wrong(registration, absl::StrCat("its ", bytes, " bytes reach beyond the arena"));
  }

  const bool source_outside = registration.sends && !source_inside;
  end.split_source =
      source_outside && direct.kept_chunks != 0 && DirectReads::IsReadable(source, bytes);
  if (direct.by_itself) {
    if (source_outside) end.direct_source = source;
    if (registration.receives && !destination_inside) end.direct_destination = destination;
  }

  // Where ringd writes: the destination, or for the root of a broadcast, which has its result
  // already, the source; a staging block where those are not in the arena.
  void* written = registration.receives ? destination : const_cast<void*>(source);
  if (!(registration.receives ? destination_inside : source_inside)) {
    const absl::StatusOr<std::uint64_t> block = TakeBlock(registration, /*warm=*/!direct.put_off);
    if (!block.ok()) return block.status();
    end.staging_offset = *block;
    written = arena_.AtOffset(*block);
  }
  // Where ringd reads: the source, or the copy of it that stands where the result will.
  const void* read = written;
  if (written != destination && (registration.receives || destination != source)) {
    end.copy_from = registration.receives ? written : source;
    end.copy_to = destination;
  }
  const bool result_comes = end.copy_from == written;
  if (direct.in_pieces && copies_ != nullptr && bytes >= StagedCopies::kLeastBytes &&
      (source_outside || result_comes)) {
    end.progress = copies_->TakeRecord();
  }
  const bool in_pieces = end.progress != kNoProgress;
  if (source_inside) {
    read = source;
  } else if (source_outside && (in_pieces || direct.put_off)) {
    end.staged_from = source;
    end.staged_to = written;
  } else if (source_outside) {
    CopyChunks(written, source, bytes, ChunkBytes(bytes),
               end.split_source ? direct.kept_chunks : 0);
  }
  record.flags = (in_pieces && source_outside ? std::uint32_t{kSourceInPieces} : 0) |
                 (in_pieces && result_comes ? std::uint32_t{kResultInPieces} : 0);
  record.progress = in_pieces ? end.progress : 0;
  record.source_offset = arena_.OffsetOf(read);
  record.destination_offset = arena_.OffsetOf(written);
  return absl::OkStatus();
}

void Staging::CopyPutOff(std::uint32_t kept_chunks, Submission& record, OperationEnd& end) {
  const Registration& registration = *end.registration;
  if (end.staging_offset != kNoStaging) {
    const void* const before = end.staged_to;
    end.staging_offset = Exchange(registration, end.staging_offset);
    end.staged_to = arena_.AtOffset(end.staging_offset);
    if (end.copy_from == before) end.copy_from = end.staged_to;
    record.source_offset = record.destination_offset = end.staging_offset;
  }
  CopyChunks(end.staged_to, end.staged_from, registration.bytes, ChunkBytes(registration.bytes),
             end.split_source ? kept_chunks : 0);
  end.staged_from = nullptr;
}

void Staging::Finish(const OperationEnd& end, bool succeeded) {
  if (succeeded && end.copy_from != nullptr) {
    const std::uint64_t bytes = end.registration->bytes;
    if (end.progress != kNoProgress) {
      CopyChunks(end.copy_to, end.copy_from, bytes, StagingPieceBytes(bytes), end.fetched_pieces);
    } else {
      CopyChunks(end.copy_to, end.copy_from, bytes, ChunkBytes(bytes), end.written_chunks);
    }
  }
  if (end.progress != kNoProgress) copies_->GiveBackRecord(end.progress);
  if (end.staging_offset != kNoStaging) GiveBack(*end.registration, end.staging_offset);
}

absl::StatusOr<std::uint64_t> Staging::TakeBlock(const Registration& registration, bool warm) {
  const std::uint64_t block_bytes = BlockBytes(registration.bytes);
  {
    MutexLock lock(mutex_);
    std::deque<std::uint64_t>& idle = idle_[block_bytes];
    if (!idle.empty()) {
      const std::uint64_t offset = warm ? idle.back() : idle.front();
      warm ? idle.pop_back() : idle.pop_front();
      return offset;
    }
  }
  absl::StatusOr<std::uint64_t> offset = arena_.AllocateOffset(block_bytes);
  if (!offset.ok()) {
    return InTensor(registration.description.name, offset.status());
  }
  return offset;
}

std::uint64_t Staging::Exchange(const Registration& registration, std::uint64_t offset) {
  MutexLock lock(mutex_);
  std::deque<std::uint64_t>& idle = idle_[BlockBytes(registration.bytes)];
  idle.push_front(offset);
  const std::uint64_t warmest = idle.back();
  idle.pop_back();
  return warmest;
}

void Staging::GiveBack(const Registration& registration, std::uint64_t offset) {
  MutexLock lock(mutex_);
  idle_[BlockBytes(registration.bytes)].push_back(offset);
}

bool Staging::FreeIdleBlocks() {
  bool freed = false;
  MutexLock lock(mutex_);
  for (auto& [bytes, offsets] : idle_) {
    for (const std::uint64_t offset : offsets) arena_.FreeOffset(offset);
    freed |= !offsets.empty();
    offsets.clear();
  }
  return freed;
}

}  // namespace ringd::client
