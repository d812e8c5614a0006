// What a thread sleeps on that waits for many descriptors and can be woken by other threads.
#ifndef RINGD_PROTO_BASE_WAKING_EPOLL_H_
#define RINGD_PROTO_BASE_WAKING_EPOLL_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "proto/base/unique_fd.h"

namespace ringd {

// An epoll instance with an eventfd in it.
//
// Thread safety: all methods from any thread, but moves.
// Ownership: of the two descriptors; those that are watched stay their owners'.
class WakingEpoll {
 public:
  // Watches nothing and wakes nobody, until one that was created is moved here.
  WakingEpoll() = default;
  // `wake_key` is what epoll_wait returns after Wake.
  //   What the kernel says.
  static absl::StatusOr<WakingEpoll> Create(std::uint64_t wake_key);

  int fd() const noexcept { return epoll_.get(); }
  // `events` are epoll's, such as EPOLLIN. False: errno says why.
  bool Watch(int fd, std::uint32_t events, std::uint64_t key) const noexcept;
  // Remove it before it is closed if anybody holds a duplicate of it.
  void Unwatch(int fd) const noexcept;

  // Who waits, or waits next, finds the wake key: again and again, until TakeWake.
  void Wake() const noexcept;
  void TakeWake() const noexcept;

 private:
  UniqueFd epoll_;
  UniqueFd wake_;
};

}  // namespace ringd

#endif  // RINGD_PROTO_BASE_WAKING_EPOLL_H_
