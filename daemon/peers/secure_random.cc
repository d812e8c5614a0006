#include "daemon/peers/secure_random.h"

#include <sys/random.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/escaping.h"

namespace ringd {

std::string RandomBytes(std::size_t count) {
  std::string bytes(count, '\0');
  std::size_t done = 0;
  while (done < count) {
    const ssize_t got = ::getrandom(bytes.data() + done, count - done, 0);
    if (got > 0) {
      done += static_cast<std::size_t>(got);
    } else if (errno != EINTR) {
      std::perror("ringd: getrandom");
      std::abort();
    }
  }
  return bytes;
}

std::string RandomHexToken(std::size_t bytes) { return absl::BytesToHexString(RandomBytes(bytes)); }

}  // namespace ringd
