#include "daemon/door/cluster_key.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/base/errno_status.h"
#include "proto/base/unique_fd.h"

namespace ringd {
namespace {

constexpr mode_t kOthers = S_IRWXG | S_IRWXO;

absl::Status CheckFile(const struct stat& file, const std::string& what) {
  if (!S_ISREG(file.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(what, " is no regular file"));
  }
  // Root may look at the file of ringd's user (ringd --check-config).
  if (::geteuid() != 0 && file.st_uid != ::geteuid() && file.st_uid != 0) {
    return absl::PermissionDeniedError(absl::StrCat(what, " belongs to uid ", file.st_uid,
                                                    ": it must belong to ringd's user (uid ",
                                                    ::geteuid(), ")"));
  }
  if ((file.st_mode & kOthers) != 0) {
    return absl::PermissionDeniedError(absl::StrFormat(
        "%s has mode %04o: others must not read it (chmod 0600)", what, file.st_mode & 07777));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> ReadClusterKey(const std::string& path) {
  if (path.empty()) return std::string();
  const std::string what = absl::StrCat("cluster_key_file ", path);
  // Opening a pipe would wait for somebody who writes.
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat file {};
  if (!fd.valid() && errno == EACCES) {
    return absl::PermissionDeniedError(
        absl::StrCat(what, ": this user (uid ", ::geteuid(),
                     ") may not read it. The service's has to belong to the service's user (chown "
                     "ringd), mode 0600. A ringd of your own beside the service goes without its "
                     "settings: --config /dev/null"));
  }
  if (!fd.valid() || ::fstat(fd.get(), &file) != 0) return ErrnoStatus(errno, what);
  if (absl::Status status = CheckFile(file, what); !status.ok()) return status;
  std::string key(kMostClusterKeyBytes + 1, '\0');
  const ssize_t count = ::read(fd.get(), key.data(), key.size());
  if (count < 0) return ErrnoStatus(errno, what);
  key.resize(static_cast<std::size_t>(count));
  if (key.size() > kMostClusterKeyBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " has more than ", kMostClusterKeyBytes, " bytes"));
  }
  while (!key.empty() && (key.back() == '\n' || key.back() == '\r')) key.pop_back();
  if (key.size() < kLeastClusterKeyBytes) {
    return absl::InvalidArgumentError(absl::StrCat(what, " holds ", key.size(),
                                                   " bytes: a key has ", kLeastClusterKeyBytes,
                                                   " or more, by chance (openssl rand -hex 32)"));
  }
  return key;
}

}  // namespace ringd
