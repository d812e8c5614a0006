#include "proto/base/memory_mapping.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/errno_status.h"
#include "proto/base/memfd.h"

namespace ringd {

MemoryMapping::MemoryMapping(MemoryMapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MemoryMapping& MemoryMapping::operator=(MemoryMapping&& other) noexcept {
  if (this != &other) {
    Unmap();
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

MemoryMapping::~MemoryMapping() { Unmap(); }

absl::StatusOr<MemoryMapping> MemoryMapping::MapFor(int protection, int fd, std::size_t bytes) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return ErrnoStatus(errno, "fstat of shared memory");
  if (static_cast<std::size_t>(info.st_size) < bytes) {
    return absl::InvalidArgumentError(absl::StrCat("shared memory holds ", info.st_size,
                                                   " bytes where ", bytes, " are to be mapped"));
  }
  void* address = ::mmap(nullptr, bytes, protection, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (address == MAP_FAILED) return ErrnoStatus(errno, "mmap of shared memory");
  return MemoryMapping(static_cast<std::byte*>(address), bytes);
}

absl::StatusOr<MemoryMapping> MemoryMapping::Map(int fd, std::size_t bytes) {
  return MapFor(PROT_READ | PROT_WRITE, fd, bytes);
}

absl::StatusOr<MemoryMapping> MemoryMapping::MapReadOnly(int fd, std::size_t bytes) {
  if (absl::Status status = CheckSealed(fd); !status.ok()) return status;
  return MapFor(PROT_READ, fd, bytes);
}

absl::StatusOr<MemoryMapping> MemoryMapping::MapSealed(int fd, std::size_t bytes) {
  if (absl::Status status = CheckSealed(fd); !status.ok()) return status;
  return Map(fd, bytes);
}

void MemoryMapping::Unmap() noexcept {
  if (data_ != nullptr) ::munmap(data_, size_);
}

}  // namespace ringd
