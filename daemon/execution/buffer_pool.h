// Memory for buckets, touched once and then reused.
#ifndef RINGD_DAEMON_EXECUTION_BUFFER_POOL_H_
#define RINGD_DAEMON_EXECUTION_BUFFER_POOL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace ringd {

class BufferPool;

// A buffer on loan; goes back to its pool when it is destroyed. The pool must live longer.
class PooledBuffer {
 public:
  PooledBuffer() noexcept = default;
  PooledBuffer(PooledBuffer&& other) noexcept;
  PooledBuffer& operator=(PooledBuffer&& other) noexcept;
  ~PooledBuffer();

  std::byte* data() const noexcept { return data_; }

 private:
  friend class BufferPool;
  PooledBuffer(BufferPool* pool, std::byte* data, std::size_t capacity) noexcept
      : pool_(pool), data_(data), capacity_(capacity) {}

  BufferPool* pool_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t capacity_ = 0;
};

// The first touch of a page costs more than reducing it, so buffers are kept: four times as many
// bytes as were ever on loan at once, or kKeptBytes. Where sizes change for ever, what was not used
// for longest goes.
//
// Thread safety: none; the progress thread owns it.
// Ownership: owns all memory, that on loan included; destroy it after the loans have ended.
// Invariant: a job whose steps repeat causes no allocation after its first steps.
class BufferPool {
 public:
  BufferPool() = default;
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;
  ~BufferPool();

  // At least `bytes`, aligned to a page, content undefined; the smallest free one that fits and is
  // not more than twice as large. Empty (data() is null) if the system has no memory, or if bytes
  // is 0.
  PooledBuffer Acquire(std::size_t bytes);

  static constexpr std::uint64_t kKeptBytes = std::uint64_t{256} << 20;

  // Grows with each new buffer.
  std::uint64_t allocated_bytes() const noexcept { return allocated_bytes_; }
  // Of the buffers that there are, those on loan included.
  std::uint64_t held_bytes() const noexcept { return free_bytes_ + loaned_bytes_; }

 private:
  friend class PooledBuffer;
  struct Free {
    std::byte* data;
    std::size_t capacity;
    std::uint64_t returned;  // when: so many had come back
  };
  void Return(std::byte* data, std::size_t capacity) noexcept;
  PooledBuffer Lend(std::byte* data, std::size_t capacity) noexcept;
  void Trim() noexcept;

  std::vector<Free> free_;  // by ascending capacity
  std::uint64_t returned_ = 0;
  std::uint64_t free_bytes_ = 0;
  std::uint64_t loaned_bytes_ = 0;
  std::uint64_t most_loaned_bytes_ = 0;
  std::uint64_t allocated_bytes_ = 0;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_EXECUTION_BUFFER_POOL_H_
