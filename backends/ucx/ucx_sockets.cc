#include "backends/ucx/ucx_sockets.h"

#include <dirent.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <memory>

#include "absl/strings/numbers.h"

namespace ringd {
namespace {

struct FolderCloser {
  void operator()(DIR* folder) const noexcept { ::closedir(folder); }
};

bool IsTcpConnection(int fd) noexcept {
  int protocol = 0;
  socklen_t length = sizeof(protocol);
  if (::getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &length) != 0) return false;
  sockaddr_storage peer{};
  length = sizeof(peer);
  return protocol == IPPROTO_TCP &&
         ::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) == 0;
}

}  // namespace

int LimitUnsentBytes(std::uint32_t bytes) noexcept {
  const std::unique_ptr<DIR, FolderCloser> folder(::opendir("/proc/self/fd"));
  if (folder == nullptr) return 0;
  int connections = 0;
  while (const dirent* const entry = ::readdir(folder.get())) {
    int fd = -1;
    // Another thread may close it meanwhile, and open something else: then that is tried in vain, or
    // is a TCP connection, too.
    if (!absl::SimpleAtoi(entry->d_name, &fd) || !IsTcpConnection(fd)) continue;
    if (::setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &bytes, sizeof(bytes)) == 0) ++connections;
  }
  return connections;
}

}  // namespace ringd
