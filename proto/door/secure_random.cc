#include "proto/door/secure_random.h"

#include <sys/random.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/escaping.h"

namespace ringd {

void FillRandom(std::span<std::byte> bytes) noexcept {
  while (!bytes.empty()) {
    const ssize_t got = ::getrandom(bytes.data(), bytes.size(), 0);
    if (got > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(got));
    } else if (errno != EINTR) {
      std::perror("ringd: getrandom");
      std::abort();
    }
  }
}

std::string RandomBytes(std::size_t count) {
  std::string bytes(count, '\0');
  FillRandom(std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

std::string RandomHexToken(std::size_t bytes) { return absl::BytesToHexString(RandomBytes(bytes)); }

}  // namespace ringd
