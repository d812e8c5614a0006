#include "tests/backends/tcp/loopback_sockets.h"

#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ringd {
namespace {

constexpr std::chrono::milliseconds kRetryAfter{5};

sockaddr_in LoopbackAddress(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

UniqueFd NewSocket() {
  return UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

}  // namespace

LoopbackSockets::LoopbackSockets()
    : epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      listener_(NewSocket()),
      timer_(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {
  sockaddr_in address = LoopbackAddress(0);
  auto* const name = reinterpret_cast<sockaddr*>(&address);
  socklen_t length = sizeof(address);
  if (::bind(listener_.get(), name, length) != 0 || ::listen(listener_.get(), 128) != 0 ||
      ::getsockname(listener_.get(), name, &length) != 0) {
    throw std::runtime_error("no listener on the loopback interface");
  }
  address_ = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  Watch(listener_.get(), EPOLLIN);
  Watch(timer_.get(), EPOLLIN);
}

void LoopbackSockets::Watch(int fd, std::uint32_t events) const {
  epoll_event event{};
  event.events = events;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
  }
}

void LoopbackSockets::Open(const WireMembership& membership) {
  open_[membership.wire_id] = membership;
}

void LoopbackSockets::Close(std::uint64_t wire_id) {
  open_.erase(wire_id);
  std::erase_if(calls_, [&](const Call& call) { return call.hello.wire_id == wire_id; });
  std::erase_if(events_, [&](const Event& event) { return event.wire_id == wire_id; });
}

void LoopbackSockets::Dial(std::uint64_t wire_id, NodeIndex to, std::uint32_t stream) {
  Call& call = calls_.emplace_back();
  call.hello = {wire_id, open_.at(wire_id).self.value(), to.value(), stream};
  BeginCall(call);
}

void LoopbackSockets::BeginCall(Call& call) {
  const WireMembership& membership = open_.at(call.hello.wire_id);
  const std::string& address = membership.addresses[static_cast<std::size_t>(call.hello.to)];
  const int port = std::atoi(address.substr(address.rfind(':') + 1).c_str());
  const sockaddr_in name = LoopbackAddress(static_cast<std::uint16_t>(port));
  call.socket = NewSocket();
  call.greeted = false;
  // How it ends is asked for in GoOn().
  ::connect(call.socket.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name));
  Watch(call.socket.get(), EPOLLOUT);
}

std::vector<WireSockets::Event> LoopbackSockets::Take() {
  Accept();
  std::erase_if(callers_, [this](Caller& caller) { return Hear(caller); });
  std::erase_if(calls_, [this](Call& call) { return GoOn(call); });
  SetTimer();
  return std::exchange(events_, {});
}

void LoopbackSockets::Accept() {
  for (;;) {
    UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) return;
    Watch(socket.get(), EPOLLIN);
    callers_.emplace_back().socket = std::move(socket);
  }
}

bool LoopbackSockets::Hear(Caller& caller) {
  const ssize_t got =
      ::recv(caller.socket.get(), reinterpret_cast<char*>(&caller.hello) + caller.received,
             sizeof(caller.hello) - caller.received, 0);
  if (got < 0) return errno != EAGAIN;
  if (got == 0) return true;
  caller.received += static_cast<std::size_t>(got);
  if (caller.received < sizeof(caller.hello)) return false;
  const auto found = open_.find(caller.hello.wire_id);
  const bool known = found != open_.end() && found->second.self.value() == caller.hello.to;
  const char verdict = known ? kWelcome : kUnknown;
  ::send(caller.socket.get(), &verdict, 1, MSG_NOSIGNAL);
  if (!known) return true;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, caller.socket.get(), nullptr);
  events_.push_back({caller.hello.wire_id, NodeIndex(caller.hello.from), caller.hello.stream, false,
                     absl::OkStatus(), std::move(caller.socket)});
  return true;
}

bool LoopbackSockets::GoOn(Call& call) {
  if (!call.socket.valid()) {
    if (Clock::now() >= call.again_at) BeginCall(call);
    return false;
  }
  if (!call.greeted) {
    int error = 0;
    socklen_t length = sizeof(error);
    ::getsockopt(call.socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) return End(call, absl::UnavailableError(std::strerror(error)));
    const ssize_t sent = ::send(call.socket.get(), &call.hello, sizeof(call.hello), MSG_NOSIGNAL);
    if (sent != sizeof(call.hello)) {
      if (errno == EAGAIN || errno == ENOTCONN) return false;
      return End(call, absl::UnavailableError(std::strerror(errno)));
    }
    call.greeted = true;
    Watch(call.socket.get(), EPOLLIN);
  }
  char verdict = 0;
  const ssize_t got = ::recv(call.socket.get(), &verdict, 1, 0);
  if (got < 0 && errno == EAGAIN) return false;
  if (got != 1) return End(call, absl::UnavailableError("hung up during the handshake"));
  if (verdict == kWelcome) return End(call, absl::OkStatus());
  call.socket.Reset();
  call.again_at = Clock::now() + kRetryAfter;
  return false;
}

bool LoopbackSockets::End(Call& call, absl::Status status) {
  const Hello& hello = call.hello;
  if (status.ok()) {
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, call.socket.get(), nullptr);
  } else {
    const auto to = static_cast<std::size_t>(hello.to);
    status = absl::UnavailableError(
        absl::StrCat(open_.at(hello.wire_id).addresses[to], ": ", status.message()));
    call.socket.Reset();
  }
  events_.push_back({hello.wire_id, NodeIndex(hello.to), hello.stream, true, std::move(status),
                     std::move(call.socket)});
  return true;
}

// While a call is to be tried again: at some time soon, which is soon enough.
void LoopbackSockets::SetTimer() const {
  itimerspec time{};
  for (const Call& call : calls_) {
    if (!call.socket.valid()) {
      time.it_value.tv_nsec = std::chrono::nanoseconds(kRetryAfter).count();
    }
  }
  ::timerfd_settime(timer_.get(), 0, &time, nullptr);
}

}  // namespace ringd
