// How a buffer is divided: into one block for each node, and blocks into chunks.
#ifndef RINGD_BACKENDS_COLLECTIVES_CHUNKING_H_
#define RINGD_BACKENDS_COLLECTIVES_CHUNKING_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace ringd {

// A range [begin, end) of bytes of a buffer.
struct ByteRange {
  std::size_t begin = 0;
  std::size_t end = 0;

  constexpr std::size_t size() const noexcept { return end - begin; }
  constexpr bool empty() const noexcept { return begin == end; }
};

// Divides `total_bytes` into `block_count` blocks that differ by at most one cache line, and each
// block into chunks. Boundaries are multiples of 64 bytes, so no element is cut, whatever its type,
// and no two blocks share a line. Blocks may be empty.
//
// Thread safety: a value.
class Chunking {
 public:
  constexpr Chunking() noexcept = default;

  // Requirements: block_count > 0, chunk_bytes a positive multiple of 64.
  constexpr Chunking(std::size_t total_bytes, std::uint32_t block_count,
                     std::uint32_t chunk_bytes) noexcept
      : total_bytes_(total_bytes),
        lines_per_block_((total_bytes + kLine - 1) / kLine / block_count),
        longer_blocks_((total_bytes + kLine - 1) / kLine % block_count),
        chunk_bytes_(chunk_bytes) {}

  constexpr ByteRange Block(std::uint32_t block) const noexcept {
    return {BlockBegin(block), BlockBegin(block + 1)};
  }

  constexpr std::uint32_t ChunkCount(std::uint32_t block) const noexcept {
    return static_cast<std::uint32_t>((Block(block).size() + chunk_bytes_ - 1) / chunk_bytes_);
  }

  // The chunk count of the longest block.
  constexpr std::uint32_t MaxChunkCount() const noexcept { return ChunkCount(0); }

  // Requirement: chunk < ChunkCount(block).
  constexpr ByteRange Chunk(std::uint32_t block, std::uint32_t chunk) const noexcept {
    const ByteRange whole = Block(block);
    const std::size_t begin = whole.begin + std::size_t{chunk} * chunk_bytes_;
    return {begin, std::min(begin + chunk_bytes_, whole.end)};
  }

 private:
  static constexpr std::size_t kLine = 64;

  constexpr std::size_t BlockBegin(std::uint32_t block) const noexcept {
    const std::size_t lines =
        block * lines_per_block_ + std::min<std::size_t>(block, longer_blocks_);
    return std::min(lines * kLine, total_bytes_);
  }

  std::size_t total_bytes_ = 0;
  std::size_t lines_per_block_ = 0;
  std::size_t longer_blocks_ = 0;  // the first blocks have one line more
  std::size_t chunk_bytes_ = kLine;
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_COLLECTIVES_CHUNKING_H_
