// How a tensor that the ranks of a one-node job combine is cut. All members must agree, so it
// follows from the tensor's bytes alone.
#ifndef RINGD_CLIENT_CORE_TENSORS_LOCAL_CHUNKS_H_
#define RINGD_CLIENT_CORE_TENSORS_LOCAL_CHUNKS_H_

#include <algorithm>
#include <cstdint>

#include "proto/shm/job_segment.h"

namespace ringd::client {

// The least worth a claim of its own.
inline constexpr std::uint64_t kLeastChunkBytes = 16 * 1024;
inline constexpr std::uint64_t kChunkAlignment = 64;
// A multiple of kChunkAlignment; the last chunk may be shorter.
constexpr std::uint64_t ChunkBytes(std::uint64_t bytes) noexcept {
  const std::uint64_t least = (bytes + kMaxChunks - 1) / kMaxChunks;
  const std::uint64_t aligned = (least + kChunkAlignment - 1) / kChunkAlignment * kChunkAlignment;
  return std::max(aligned, kLeastChunkBytes);
}

constexpr std::uint32_t ChunkCount(std::uint64_t bytes) noexcept {
  const std::uint64_t chunk = ChunkBytes(bytes);
  return static_cast<std::uint32_t>((bytes + chunk - 1) / chunk);
}

// The chunks that a member is to begin with, and mostly ends up with: its *home* chunks, as bits.
constexpr std::uint32_t FirstHomeChunk(std::uint32_t member, std::uint32_t member_count,
                                       std::uint32_t chunk_count) noexcept {
  return member * chunk_count / member_count;
}
constexpr std::uint32_t HomeChunks(std::uint32_t member, std::uint32_t member_count,
                                   std::uint32_t chunk_count) noexcept {
  return (1U << FirstHomeChunk(member + 1, member_count, chunk_count)) -
         (1U << FirstHomeChunk(member, member_count, chunk_count));
}

// What is read from other processes of a chunk is combined in pieces that stay in the second-level
// cache, all members' together.
inline constexpr std::uint64_t kPiecesBytes = 128 * 1024;
inline constexpr std::uint64_t kLeastPieceBytes = 4096;

// A multiple of kChunkAlignment. `pieces`: how many are held at the same time, 1 at least.
constexpr std::uint64_t PieceBytes(std::uint64_t pieces) noexcept {
  return std::max(kPiecesBytes / pieces / kChunkAlignment * kChunkAlignment, kLeastPieceBytes);
}

// Room for all pieces of a job with so many members.
constexpr std::uint64_t ScratchBytes(std::uint32_t member_count) noexcept {
  return std::max(kPiecesBytes, member_count * kLeastPieceBytes);
}

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_TENSORS_LOCAL_CHUNKS_H_
