#include "backends/tcp/tcp_poller.h"

#include <sys/epoll.h>

#include <array>
#include <cerrno>

#include "backends/tcp/tcp_connection.h"
#include "proto/base/errno_status.h"

namespace ringd {

TcpPoller::TcpPoller() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {}

absl::Status TcpPoller::Watch(int fd, Pollable& what) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = &what;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return absl::OkStatus();
  return ErrnoStatus(errno, "watching a descriptor");
}

absl::Status TcpPoller::WatchConnection(int fd, TcpConnection& connection) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.ptr = static_cast<Pollable*>(&connection);
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    return ErrnoStatus(errno, "watching a connection");
  }
  // So that nothing is allocated later.
  ++watched_;
  ready_.reserve(watched_);
  handled_.reserve(watched_);
  partial_.reserve(watched_);
  return absl::OkStatus();
}

void TcpPoller::Forget(int fd, TcpConnection& connection) noexcept {
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr) == 0) --watched_;
  std::erase(partial_, &connection);
  if (!connection.on_ready_list()) return;
  std::erase(ready_, &connection);
  std::replace(handled_.begin(), handled_.end(), &connection, static_cast<TcpConnection*>(nullptr));
}

std::size_t TcpPoller::Poll() noexcept {
  std::array<epoll_event, kEventsAtOnce> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), kEventsAtOnce, 0);
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    static_cast<Pollable*>(event.data.ptr)->OnEvents(event.events);
  }
  return count > 0 ? static_cast<std::size_t>(count) : 0;
}

void TcpPoller::AddReady(TcpConnection& connection) noexcept {
  if (connection.on_ready_list()) return;
  connection.set_on_ready_list(true);
  ready_.push_back(&connection);
}

void TcpPoller::NotePartial(TcpConnection& connection) noexcept {
  if (std::find(partial_.begin(), partial_.end(), &connection) == partial_.end()) {
    partial_.push_back(&connection);
  }
}

void TcpPoller::AwaitWholeFrames() noexcept {
  for (TcpConnection* const connection : partial_) connection->AwaitWholeFrame();
  partial_.clear();
}

void TcpPoller::LeaveList(TcpConnection& connection) noexcept {
  connection.set_on_ready_list(false);
}

}  // namespace ringd
