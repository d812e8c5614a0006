// How a tensor that the ranks of a one-node job combine is cut. All members must agree, so it follows from the
// tensor's bytes alone.
#ifndef RINGD_CLIENT_CORE_LOCAL_CHUNKS_H_
#define RINGD_CLIENT_CORE_LOCAL_CHUNKS_H_

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

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_LOCAL_CHUNKS_H_
