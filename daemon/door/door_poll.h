// The numbers by which the door's thread knows what its epoll instance tells.
#ifndef RINGD_DAEMON_DOOR_DOOR_POLL_H_
#define RINGD_DAEMON_DOOR_DOOR_POLL_H_

#include <sys/epoll.h>

#include <cstdint>

namespace ringd {

// Strangers have the numbers below kFirstDialKey, dials those from there on; then these two.
inline constexpr std::uint64_t kFirstDialKey = std::uint64_t{1} << 62;
inline constexpr std::uint64_t kDoorListenKey = UINT64_MAX;
inline constexpr std::uint64_t kDoorWakeKey = UINT64_MAX - 1;

inline bool WatchAtDoor(int epoll, int fd, std::uint32_t events, std::uint64_t key) noexcept {
  epoll_event event{};
  event.events = events;
  event.data.u64 = key;
  return ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

// A handshake's connection is told of once for each change: both ends are driven until the kernel
// has no more.
inline constexpr std::uint32_t kHandshakeEvents = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;

inline void UnwatchAtDoor(int epoll, int fd) noexcept {
  ::epoll_ctl(epoll, EPOLL_CTL_DEL, fd, nullptr);
}

}  // namespace ringd

#endif  // RINGD_DAEMON_DOOR_DOOR_POLL_H_
