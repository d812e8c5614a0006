#include "client/cli/run/file_space.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"

namespace ringd::cli {

int WriteAll(int file, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    if (written == 0) return ENOSPC;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

std::string DescribeFullDisk(const std::string& folder) {
  struct statvfs disk {};
  if (::statvfs(folder.c_str(), &disk) != 0) return "";
  // Some file systems have no number of files.
  const bool is_full = disk.f_bavail == 0 || (disk.f_files > 0 && disk.f_favail == 0);
  return is_full ? absl::StrCat("; no space is left on the disk of ", folder) : "";
}

}  // namespace ringd::cli
