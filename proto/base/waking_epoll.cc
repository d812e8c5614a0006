#include "proto/base/waking_epoll.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include "proto/base/errno_status.h"

namespace ringd {

absl::StatusOr<WakingEpoll> WakingEpoll::Create(std::uint64_t wake_key) {
  WakingEpoll made;
  made.epoll_.Reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!made.epoll_.valid()) return ErrnoStatus(errno, "epoll_create1");
  made.wake_.Reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!made.wake_.valid()) return ErrnoStatus(errno, "eventfd");
  if (!made.Watch(made.wake_.get(), EPOLLIN, wake_key)) return ErrnoStatus(errno, "epoll_ctl");
  return made;
}

bool WakingEpoll::Watch(int fd, std::uint32_t events, std::uint64_t key) const noexcept {
  epoll_event event{};
  event.events = events;
  event.data.u64 = key;
  return ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

void WakingEpoll::Unwatch(int fd) const noexcept {
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

void WakingEpoll::Wake() const noexcept {
  const std::uint64_t one = 1;
  static_cast<void>(!::write(wake_.get(), &one, sizeof(one)));
}

void WakingEpoll::TakeWake() const noexcept {
  std::uint64_t wakes = 0;
  static_cast<void>(!::read(wake_.get(), &wakes, sizeof(wakes)));
}

}  // namespace ringd
