#include "client/cli/run/made_folders.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "proto/base/unique_fd.h"
#include "proto/base/write_all.h"

namespace ringd::cli {
namespace {

// A block, without which nothing can be kept.
constexpr std::size_t kTriedBytes = 4096;

absl::Status Unusable(const std::filesystem::path& folder, int error) {
  return absl::FailedPreconditionError(absl::StrCat(
      "'", folder.string(),
      "' can't be written: ", std::error_code(error, std::generic_category()).message()));
}

// A file with something in it, which is gone afterwards. 0, or why not.
int TryToWrite(const std::string& folder) {
  std::string path = folder + "/.ringctl-XXXXXX";
  const UniqueFd file(::mkostemp(path.data(), O_CLOEXEC));
  if (!file.valid()) return errno;
  ::unlink(path.c_str());
  return WriteAll(file.get(), std::string(kTriedBytes, ' '));
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
  if (const int error = TryToWrite(folder); error != 0) return Unusable(folder, error);
  return absl::OkStatus();
}

}  // namespace ringd::cli
