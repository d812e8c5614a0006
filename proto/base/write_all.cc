#include "proto/base/write_all.h"

#include <unistd.h>

#include <cerrno>
#include <cstddef>

namespace ringd {

int WriteAll(int file, absl::string_view bytes) noexcept {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    if (written == 0) return ENOSPC;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

}  // namespace ringd
