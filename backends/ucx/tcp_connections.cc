#include "backends/ucx/tcp_connections.h"

#include <dirent.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <cstddef>
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

std::optional<std::uint64_t> CookieOf(int fd) noexcept {
  std::uint64_t cookie = 0;
  socklen_t length = sizeof(cookie);
  if (::getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &length) != 0) return std::nullopt;
  return cookie;
}

Clock::duration Microseconds(std::uint64_t count) noexcept {
  return std::chrono::microseconds(static_cast<std::int64_t>(count));
}

}  // namespace

std::vector<int> TcpConnections() {
  std::vector<int> connections;
  const std::unique_ptr<DIR, FolderCloser> folder(::opendir("/proc/self/fd"));
  if (folder == nullptr) return connections;
  while (const dirent* const entry = ::readdir(folder.get())) {
    int fd = -1;
    if (absl::SimpleAtoi(entry->d_name, &fd) && IsTcpConnection(fd)) connections.push_back(fd);
  }
  return connections;
}

std::uint64_t DigestTcpConnections() {
  std::uint64_t digest = 0;
  for (const int fd : TcpConnections()) digest += CookieOf(fd).value_or(0);
  return digest;
}

std::optional<TcpCounters> ReadTcpCounters(const TcpSocket& socket) noexcept {
  if (!socket.known() || CookieOf(socket.fd) != socket.cookie) return std::nullopt;
  tcp_info info{};
  socklen_t length = sizeof(info);
  if (::getsockopt(socket.fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0 ||
      length < offsetof(tcp_info, tcpi_dsack_dups)) {
    return std::nullopt;
  }
  TcpCounters counters;
  counters.written_bytes = info.tcpi_bytes_sent - info.tcpi_bytes_retrans + info.tcpi_notsent_bytes;
  counters.acked_bytes = info.tcpi_bytes_acked;
  counters.busy = Microseconds(info.tcpi_busy_time);
  counters.window_limited = Microseconds(info.tcpi_rwnd_limited);
  counters.round_trip = Microseconds(info.tcpi_rtt);
  counters.least_round_trip = Microseconds(info.tcpi_min_rtt);
  counters.congestion_limited = info.tcpi_unacked >= info.tcpi_snd_cwnd;
  // The kernel's own tcpi_sndbuf_limited misses most of it.
  const std::uint64_t left = counters.written_bytes - info.tcpi_bytes_acked;
  counters.all_sent = !counters.congestion_limited && info.tcpi_unacked > 0 &&
                      std::uint64_t{info.tcpi_notsent_bytes} * 4 <= left;
  return counters;
}

WrittenConnection::WrittenConnection() {
  for (const int fd : TcpConnections()) {
    const TcpSocket socket{fd, CookieOf(fd).value_or(0)};
    if (const auto counters = ReadTcpCounters(socket)) {
      connections_.push_back({socket, counters->written_bytes});
    }
  }
}

TcpSocket WrittenConnection::Find(std::uint64_t at_least_bytes) const {
  TcpSocket found;
  for (const Known& known : connections_) {
    const auto counters = ReadTcpCounters(known.socket);
    if (!counters || counters->written_bytes < known.written_bytes + at_least_bytes) continue;
    if (found.known()) return {};
    found = known.socket;
  }
  return found;
}

}  // namespace ringd
