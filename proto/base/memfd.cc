#include "proto/base/memfd.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "proto/base/errno_status.h"

namespace ringd {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

}  // namespace

absl::StatusOr<UniqueFd> CreateSealedMemfd(const std::string& name, std::size_t bytes) {
  UniqueFd fd(::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return ErrnoStatus(errno, "memfd_create");
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return ErrnoStatus(errno, "sizing a memfd");
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) return ErrnoStatus(errno, "sealing a memfd");
  return fd;
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
