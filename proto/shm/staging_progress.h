// A large tensor of ordinary memory on its way into the arena and out of it, while its operation
// goes on.
#ifndef RINGD_PROTO_SHM_STAGING_PROGRESS_H_
#define RINGD_PROTO_SHM_STAGING_PROGRESS_H_

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "proto/base/cache_line.h"

namespace ringd {

// A tensor that is staged in pieces has one, named by its submission. The client clears it,
// submits, and then copies the source into the arena: ringd begins with the pieces that are there.
// ringd tells which pieces of the result are final, and the client copies them out while the others
// are still being reduced.
//
// Bit i stands for piece i. Bits are only set, until the operation has ended.
//
// Thread safety: any thread of either process. A bit is set with release after the piece's bytes
//   were written, and loaded with acquire before they are read.
// Trust: a client that sets bits too early harms its own job's sums, and one that never does is a
//   rank that has not submitted.
struct alignas(kCacheLineBytes) StagingProgress {
  std::atomic<std::uint64_t> source;  // pieces in the arena; written by the client
  std::atomic<std::uint64_t> result;  // pieces in the arena; written by ringd
};
static_assert(sizeof(StagingProgress) == kCacheLineBytes);

// Of a session. Where all are taken, tensors are copied as a whole.
inline constexpr std::uint32_t kStagingProgressCount = 128;

inline constexpr std::uint32_t kMaxStagingPieces = 64;
// A message between nodes, and what a wake-up for each is worth.
inline constexpr std::uint64_t kLeastStagingPieceBytes = 128 * 1024;
inline constexpr std::uint64_t kStagingPieceAlignment = 4096;

// A multiple of kStagingPieceAlignment; the last piece may be shorter.
constexpr std::uint64_t StagingPieceBytes(std::uint64_t tensor_bytes) noexcept {
  const std::uint64_t least = tensor_bytes / kMaxStagingPieces + 1;
  const std::uint64_t aligned =
      (least + kStagingPieceAlignment - 1) / kStagingPieceAlignment * kStagingPieceAlignment;
  return std::max(aligned, kLeastStagingPieceBytes);
}

struct StagingPiece {
  std::uint64_t begin = 0;
  std::uint64_t bytes = 0;
};

// Requirement: the tensor has such a piece.
constexpr StagingPiece StagingPieceAt(std::uint64_t tensor_bytes, std::uint64_t index) noexcept {
  const std::uint64_t length = StagingPieceBytes(tensor_bytes);
  return {index * length, std::min(length, tensor_bytes - index * length)};
}

// The bits of the pieces that bytes [begin, end) of the tensor lie in. Requirement: begin < end <=
// tensor_bytes.
constexpr std::uint64_t StagingPieces(std::uint64_t tensor_bytes, std::uint64_t begin,
                                      std::uint64_t end) noexcept {
  const std::uint64_t piece = StagingPieceBytes(tensor_bytes);
  const std::uint64_t first = begin / piece;
  const std::uint64_t count = (end - 1) / piece - first + 1;
  return (~std::uint64_t{0} >> (kMaxStagingPieces - count)) << first;
}

constexpr std::uint64_t AllStagingPieces(std::uint64_t tensor_bytes) noexcept {
  return StagingPieces(tensor_bytes, 0, tensor_bytes);
}

}  // namespace ringd

#endif  // RINGD_PROTO_SHM_STAGING_PROGRESS_H_
