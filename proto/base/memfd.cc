#include "proto/base/memfd.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "proto/base/errno_status.h"

namespace ringd {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

absl::StatusOr<UniqueFd> CreateMemfd(const std::string& name, std::size_t bytes) {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  // From Linux 6.3 on; where vm.memfd_noexec=2 there are no others. Earlier ones don't know it.
  constexpr unsigned kNeverExecutable = 8;  // MFD_NOEXEC_SEAL
  UniqueFd fd(::memfd_create(name.c_str(), kFlags | kNeverExecutable));
  if (!fd.valid() && errno == EINVAL) fd.Reset(::memfd_create(name.c_str(), kFlags));
  if (!fd.valid()) return ErrnoStatus(errno, "memfd_create");
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return ErrnoStatus(errno, "sizing a memfd");
  }
  return fd;
}

absl::Status Seal(int fd, int seals) {
  if (::fcntl(fd, F_ADD_SEALS, seals) != 0) return ErrnoStatus(errno, "sealing a memfd");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<UniqueFd> CreateSealedMemfd(const std::string& name, std::size_t bytes) {
  absl::StatusOr<UniqueFd> fd = CreateMemfd(name, bytes);
  if (!fd.ok()) return fd;
  if (absl::Status status = Seal(fd->get(), kSeals); !status.ok()) return status;
  return fd;
}

absl::StatusOr<PublishedMemory> CreatePublishedMemfd(const std::string& name, std::size_t bytes) {
  absl::StatusOr<UniqueFd> fd = CreateMemfd(name, bytes);
  if (!fd.ok()) return fd.status();
  // A mapping that is there already stays writable.
  absl::StatusOr<MemoryMapping> mapping = MemoryMapping::Map(fd->get(), bytes);
  if (!mapping.ok()) return mapping.status();
  if (absl::Status status = Seal(fd->get(), kSeals | F_SEAL_FUTURE_WRITE); !status.ok()) {
    return status;
  }
  return PublishedMemory{*std::move(fd), *std::move(mapping)};
}

absl::Status CheckSealed(int fd) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0) return ErrnoStatus(errno, "reading the seals of shared memory");
  if ((seals & kSeals) != kSeals) {
    return absl::FailedPreconditionError("shared memory is not sealed against resizing");
  }
  return absl::OkStatus();
}

}  // namespace ringd
