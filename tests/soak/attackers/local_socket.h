// Connections to ringd's Unix socket for those who don't use the library.
#ifndef RINGD_TESTS_SOAK_ATTACKERS_LOCAL_SOCKET_H_
#define RINGD_TESTS_SOAK_ATTACKERS_LOCAL_SOCKET_H_

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>

namespace ringd::soak {

// A connected socket; -1: ringd's backlog is full. Does not block.
inline int ConnectToRingd(const std::string& path) {
  const int connection = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), std::min(path.size() + 1, sizeof(address.sun_path)));
  if (connection >= 0 &&
      ::connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) {
    return connection;
  }
  if (connection >= 0) ::close(connection);
  return -1;
}

}  // namespace ringd::soak

#endif  // RINGD_TESTS_SOAK_ATTACKERS_LOCAL_SOCKET_H_
