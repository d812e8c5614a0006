// How a collective's buffer is divided: into one block for each node, and blocks into chunks.
#ifndef RINGD_BACKENDS_BLOCK_MAP_H_
#define RINGD_BACKENDS_BLOCK_MAP_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace ringd {

// A range [begin, end) of bytes of a buffer.
struct ByteRange {
  std::size_t begin = 0;
  std::size_t end = 0;

  constexpr std::size_t size() const noexcept { return end - begin; }
  constexpr bool empty() const noexcept { return begin == end; }
  friend constexpr bool operator==(const ByteRange&, const ByteRange&) = default;
};

// Which bytes of the buffer are each node's block, by node, and how blocks are cut into chunks.
// Blocks may be empty. They do not overlap, and each lies behind the one before it.
//
// Thread safety: a value.
// Ownership: a map made by Of() borrows the ranges.
class BlockMap {
 public:
  constexpr BlockMap() noexcept = default;

  // Divides `total_bytes` into blocks that differ by at most one cache line. Boundaries of blocks
  // and chunks are multiples of 64 bytes, so no element is cut, whatever its type, and no two
  // blocks share a line.
  // Requirements: block_count > 0, chunk_bytes a positive multiple of 64.
  static constexpr BlockMap Even(std::size_t total_bytes, std::uint32_t block_count,
                                 std::uint32_t chunk_bytes) noexcept {
    BlockMap map;
    map.total_bytes_ = total_bytes;
    map.lines_per_block_ = (total_bytes + kLine - 1) / kLine / block_count;
    map.longer_blocks_ = (total_bytes + kLine - 1) / kLine % block_count;
    map.block_count_ = block_count;
    map.chunk_bytes_ = chunk_bytes;
    map.FindExtremes();
    return map;
  }

  // The blocks are what `blocks` says. Where they begin at whole elements, so do their chunks.
  // Requirements: there is one at least, they are in order, chunk_bytes is a positive multiple of
  // 64.
  static constexpr BlockMap Of(std::span<const ByteRange> blocks,
                               std::uint32_t chunk_bytes) noexcept {
    BlockMap map;
    map.given_ = blocks;
    map.block_count_ = static_cast<std::uint32_t>(blocks.size());
    map.chunk_bytes_ = chunk_bytes;
    map.FindExtremes();
    return map;
  }

  constexpr std::uint32_t block_count() const noexcept { return block_count_; }
  constexpr std::size_t chunk_bytes() const noexcept { return chunk_bytes_; }
  constexpr bool HasEmptyBlock() const noexcept { return has_empty_block_; }

  constexpr ByteRange Block(std::uint32_t block) const noexcept {
    if (!given_.empty()) return given_[block];
    return {EvenBegin(block), EvenBegin(block + 1)};
  }

  // The block that has the byte. Requirement: one has it.
  constexpr std::uint32_t BlockAt(std::size_t byte) const noexcept {
    std::uint32_t low = 0;
    for (std::uint32_t high = block_count_; high - low > 1;) {
      const std::uint32_t middle = low + (high - low) / 2;
      (Block(middle).begin <= byte ? low : high) = middle;
    }
    return low;
  }

  constexpr std::uint32_t ChunkCount(std::uint32_t block) const noexcept {
    return static_cast<std::uint32_t>((Block(block).size() + chunk_bytes_ - 1) / chunk_bytes_);
  }

  // The chunk count of the longest block.
  constexpr std::uint32_t MaxChunkCount() const noexcept { return max_chunk_count_; }

  // Requirement: chunk < ChunkCount(block).
  constexpr ByteRange Chunk(std::uint32_t block, std::uint32_t chunk) const noexcept {
    const ByteRange whole = Block(block);
    const std::size_t begin = whole.begin + std::size_t{chunk} * chunk_bytes_;
    return {begin, std::min(begin + chunk_bytes_, whole.end)};
  }

 private:
  static constexpr std::size_t kLine = 64;

  constexpr std::size_t EvenBegin(std::uint32_t block) const noexcept {
    const std::size_t lines =
        block * lines_per_block_ + std::min<std::size_t>(block, longer_blocks_);
    return std::min(lines * kLine, total_bytes_);
  }

  constexpr void FindExtremes() noexcept {
    if (given_.empty()) {
      max_chunk_count_ = ChunkCount(0);
      has_empty_block_ = Block(block_count_ - 1).empty();
      return;
    }
    for (std::uint32_t block = 0; block < block_count_; ++block) {
      max_chunk_count_ = std::max(max_chunk_count_, ChunkCount(block));
      has_empty_block_ = has_empty_block_ || given_[block].empty();
    }
  }

  std::span<const ByteRange> given_;  // empty: the blocks are even
  std::size_t total_bytes_ = 0;
  std::size_t lines_per_block_ = 0;
  std::size_t longer_blocks_ = 0;  // the first blocks have one line more
  std::size_t chunk_bytes_ = kLine;
  std::uint32_t block_count_ = 1;
  std::uint32_t max_chunk_count_ = 0;
  bool has_empty_block_ = false;
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_BLOCK_MAP_H_
