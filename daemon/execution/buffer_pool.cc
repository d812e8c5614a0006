#include "daemon/execution/buffer_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

namespace ringd {
namespace {

constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

}  // namespace

PooledBuffer::PooledBuffer(PooledBuffer&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)),
      data_(std::exchange(other.data_, nullptr)),
      capacity_(std::exchange(other.capacity_, 0)) {}

PooledBuffer& PooledBuffer::operator=(PooledBuffer&& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(data_, other.data_);
  std::swap(capacity_, other.capacity_);
  return *this;
}

PooledBuffer::~PooledBuffer() {
  if (pool_ != nullptr) pool_->Return(data_, capacity_);
}

BufferPool::~BufferPool() {
  for (const Free& buffer : free_) ::munmap(buffer.data, buffer.capacity);
}

PooledBuffer BufferPool::Acquire(std::size_t bytes) {
  if (bytes == 0) return {};
  const auto found =
      std::lower_bound(free_.begin(), free_.end(), bytes,
                       [](const Free& buffer, std::size_t want) { return buffer.capacity < want; });
  if (found != free_.end() && found->capacity / 2 <= std::max(bytes, kPageBytes)) {
    const Free taken = *found;
    free_.erase(found);
    free_bytes_ -= taken.capacity;
    return Lend(taken.data, taken.capacity);
  }
  const std::size_t unit = bytes >= kHugePageBytes ? kHugePageBytes : kPageBytes;
  const std::size_t capacity = (bytes + unit - 1) / unit * unit;
  void* data =
      ::mmap(nullptr, capacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return {};
  // Fewer and cheaper first touches; refused by some kernels, which is no harm.
  if (unit == kHugePageBytes) ::madvise(data, capacity, MADV_HUGEPAGE);
  allocated_bytes_ += capacity;
  return Lend(static_cast<std::byte*>(data), capacity);
}

PooledBuffer BufferPool::Lend(std::byte* data, std::size_t capacity) noexcept {
  loaned_bytes_ += capacity;
  most_loaned_bytes_ = std::max(most_loaned_bytes_, loaned_bytes_);
  return PooledBuffer(this, data, capacity);
}

void BufferPool::Return(std::byte* data, std::size_t capacity) noexcept {
  const auto place =
      std::lower_bound(free_.begin(), free_.end(), capacity,
                       [](const Free& buffer, std::size_t want) { return buffer.capacity < want; });
  free_.insert(place, Free{data, capacity, ++returned_});
  loaned_bytes_ -= capacity;
  free_bytes_ += capacity;
  Trim();
}

void BufferPool::Trim() noexcept {
  while (held_bytes() > std::max(kKeptBytes, 4 * most_loaned_bytes_)) {
    const auto oldest =
        std::min_element(free_.begin(), free_.end(),
                         [](const Free& a, const Free& b) { return a.returned < b.returned; });
    ::munmap(oldest->data, oldest->capacity);
    free_bytes_ -= oldest->capacity;
    free_.erase(oldest);
  }
}

}  // namespace ringd
