#include "client/cli/run/file_space.h"

#include <sys/statvfs.h>

#include "absl/strings/str_cat.h"

namespace ringd::cli {

std::string DescribeFullDisk(const std::string& folder) {
  struct statvfs disk {};
  if (::statvfs(folder.c_str(), &disk) != 0) return "";
  // Some file systems have no number of files.
  const bool is_full = disk.f_bavail == 0 || (disk.f_files > 0 && disk.f_favail == 0);
  return is_full ? absl::StrCat("; no space is left on the disk of ", folder) : "";
}

}  // namespace ringd::cli
