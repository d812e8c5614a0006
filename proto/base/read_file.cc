#include "proto/base/read_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/base/errno_status.h"
#include "proto/base/unique_fd.h"

namespace ringd {
namespace {

constexpr std::size_t kBlockBytes = 4096;

}  // namespace

absl::StatusOr<std::string> ReadFile(const std::string& path, std::size_t most_bytes) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return ErrnoStatus(errno, absl::StrCat("opening ", path));
  std::string text;
  std::size_t length = 0;
  for (;;) {
    // Sizes of files in /proc are not to be had; so it grows, to one byte more than may be.
    if (length == text.size()) {
      text.resize(std::min(std::max(kBlockBytes, 2 * length), most_bytes + 1));
    }
    const ssize_t count = ::read(file.get(), text.data() + length, text.size() - length);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ErrnoStatus(errno, absl::StrCat("reading ", path));
    if (count == 0) break;
    length += static_cast<std::size_t>(count);
    if (length > most_bytes) {
      return absl::OutOfRangeError(absl::StrCat(path, " has more than ", most_bytes, " bytes"));
    }
  }
  text.resize(length);
  return text;
}

}  // namespace ringd
