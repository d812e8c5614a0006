#include "client/cli/run/made_folders.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace ringd::cli {
namespace {

absl::Status Unusable(const std::filesystem::path& folder, int error) {
  return absl::FailedPreconditionError(absl::StrCat(
      "'", folder.string(),
      "' can't be written: ", std::error_code(error, std::generic_category()).message()));
}

}  // namespace

MadeFolders::~MadeFolders() {
  for (auto folder = made_.rbegin(); folder != made_.rend(); ++folder) {
    ::rmdir(folder->c_str());  // refused if there is anything in it
  }
}

absl::Status MadeFolders::Make(const std::string& folder) {
  std::filesystem::path path;
  for (const std::filesystem::path& part : std::filesystem::path(folder)) {
    path /= part;
    if (::mkdir(path.c_str(), 0777) == 0) {
      made_.push_back(path);
      continue;
    }
    const int error = errno;  // whatever it is, the folder may be there already
    std::error_code unknown;
    if (std::filesystem::is_directory(path, unknown)) continue;
    return Unusable(path, error == EEXIST ? ENOTDIR : error);
  }
  if (::access(folder.c_str(), W_OK | X_OK) != 0) return Unusable(folder, errno);
  return absl::OkStatus();
}

}  // namespace ringd::cli
