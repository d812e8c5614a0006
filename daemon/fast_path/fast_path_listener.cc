#include "daemon/fast_path/fast_path_listener.h"

#include <netdb.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/fast_path/fast_path_socket.h"
#include "daemon/logging/log.h"
#include "proto/base/errno_status.h"

namespace ringd {
namespace {

std::string DescribePeer(const sockaddr_storage& address, socklen_t length) {
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  if (::getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, host.data(), host.size(),
                    port.data(), port.size(), NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "somebody";
  }
  return absl::StrCat(host.data(), " port ", port.data());
}

}  // namespace

FastPathHello FastPathListener::Stranger::hello() const noexcept {
  FastPathHello hello;
  std::memcpy(&hello, bytes.data(), sizeof(hello));
  return hello;
}

FastPathListener::FastPathListener(UniqueFd socket, UniqueFd epoll, std::string address,
                                   CongestionControl congestion_control)
    : socket_(std::move(socket)),
      epoll_(std::move(epoll)),
      address_(std::move(address)),
      congestion_control_(std::move(congestion_control)) {
  Watch(socket_.get(), /*writable=*/false);
}

absl::StatusOr<std::unique_ptr<FastPathListener>> FastPathListener::Open(
    const std::string& host, CongestionControl congestion_control) {
  std::string address;
  absl::StatusOr<UniqueFd> socket = ListenForFastPath(host, address);
  if (!socket.ok()) return socket.status();
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return ErrnoStatus(errno, "epoll_create1");
  return std::unique_ptr<FastPathListener>(new FastPathListener(
      *std::move(socket), std::move(epoll), std::move(address), std::move(congestion_control)));
}

void FastPathListener::Watch(int fd, bool writable) {
  epoll_event event{};
  event.events = writable ? EPOLLOUT : EPOLLIN;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) == 0 || errno != ENOENT) return;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
}

void FastPathListener::Unwatch(int fd) {
  if (fd >= 0) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

void FastPathListener::Accept(Clock::time_point now) {
  while (strangers_.size() < kMostStrangers) {
    sockaddr_storage peer{};
    socklen_t length = sizeof(peer);
    UniqueFd connection(::accept4(socket_.get(), reinterpret_cast<sockaddr*>(&peer), &length,
                                  SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!connection.valid()) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return;
      if (log_limiter_.Pass(now).has_value()) {
        LogError(ErrnoStatus(errno, absl::StrCat("accepting on ", address_)).message());
      }
      break;
    }
    TuneFastPathSocket(connection.get(), congestion_control_);
    Watch(connection.get(), /*writable=*/false);
    Stranger& stranger = strangers_.emplace_back();
    stranger.connection = std::move(connection);
    stranger.from = DescribePeer(peer, length);
    stranger.since = now;
  }
  // Those who wait to be accepted would keep the engine awake.
  Unwatch(socket_.get());
  paused_ = true;
}

absl::Status FastPathListener::Listen(Stranger& stranger) const {
  if (stranger.whole()) return CheckSilent(stranger.connection.get());
  absl::Status status =
      ReceiveSome(stranger.connection.get(), std::span(stranger.bytes), stranger.filled);
  if (!status.ok() || !stranger.whole()) return status;
  const FastPathHello hello = stranger.hello();
  if (hello.magic != kFastPathMessageMagic) {
    return absl::InvalidArgumentError("it is no ringd: it does not begin as one");
  }
  if (hello.version != kFastPathWireVersion) {
    return absl::InvalidArgumentError(absl::StrCat(
        "it speaks version ", hello.version, " of the fast path, not ", kFastPathWireVersion));
  }
  return absl::OkStatus();
}

void FastPathListener::LogDropped(const Stranger& stranger, absl::string_view why,
                                  Clock::time_point now) {
  if (!log_limiter_.Pass(now).has_value()) return;
  LogWarning(
      absl::StrCat("a connection to the fast path from ", stranger.from, " was closed: ", why));
}

void FastPathListener::Advance(Clock::time_point now) {
  if (paused_) {
    // For the next try.
    paused_ = false;
    Watch(socket_.get(), /*writable=*/false);
  }
  Accept(now);
  for (auto it = strangers_.begin(); it != strangers_.end();) {
    absl::Status status = Listen(*it);
    if (status.ok() && now - it->since >= kHelloPatience) {
      status = absl::DeadlineExceededError(it->whole() ? "no job here waits for it"
                                                       : "it has not said who it is in time");
    }
    if (status.ok()) {
      ++it;
      continue;
    }
    LogDropped(*it, status.message(), now);
    it = strangers_.erase(it);
  }
}

std::vector<FastPathListener::Arrival> FastPathListener::TakeArrivals(std::uint64_t wire_id) {
  std::vector<Arrival> arrivals;
  for (auto it = strangers_.begin(); it != strangers_.end();) {
    if (!it->whole() || it->hello().wire_id != wire_id) {
      ++it;
      continue;
    }
    Unwatch(it->connection.get());
    arrivals.push_back({it->hello(), std::move(it->connection), std::move(it->from)});
    it = strangers_.erase(it);
  }
  return arrivals;
}

}  // namespace ringd
