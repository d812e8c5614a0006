// Owns one mapping of shared memory.
#ifndef RINGD_PROTO_BASE_MEMORY_MAPPING_H_
#define RINGD_PROTO_BASE_MEMORY_MAPPING_H_

#include <cstddef>

#include "absl/status/statusor.h"

namespace ringd {

// Thread safety: immutable after Map; the bytes are the user's to synchronise.
// Ownership: unmaps when it goes; does not own the descriptor it was mapped from.
class MemoryMapping {
 public:
  MemoryMapping() noexcept = default;
  MemoryMapping(MemoryMapping&& other) noexcept;
  MemoryMapping& operator=(MemoryMapping&& other) noexcept;
  MemoryMapping(const MemoryMapping&) = delete;
  MemoryMapping& operator=(const MemoryMapping&) = delete;
  ~MemoryMapping();

  // Maps the first `bytes` of `fd` shared, for reading and writing, without touching any page.
  // kInvalidArgument: the file is shorter than `bytes` (a later access would fault).
  static absl::StatusOr<MemoryMapping> Map(int fd, std::size_t bytes);

  // The same for memory that another process made: kFailedPrecondition unless it carries the seals
  // of CreateSealedMemfd.
  static absl::StatusOr<MemoryMapping> MapSealed(int fd, std::size_t bytes);
  // The same for reading only: writing faults.
  static absl::StatusOr<MemoryMapping> MapReadOnly(int fd, std::size_t bytes);

  // Of memory that was mapped for reading only, for reading only.
  std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }

 private:
  MemoryMapping(std::byte* data, std::size_t size) noexcept : data_(data), size_(size) {}
  static absl::StatusOr<MemoryMapping> MapFor(int protection, int fd, std::size_t bytes);
  void Unmap() noexcept;

  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace ringd

#endif  // RINGD_PROTO_BASE_MEMORY_MAPPING_H_
