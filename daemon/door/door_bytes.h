// Moves a handshake's bytes between its state machine and its socket.
#ifndef RINGD_DAEMON_DOOR_DOOR_BYTES_H_
#define RINGD_DAEMON_DOOR_DOOR_BYTES_H_

#include <sys/socket.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>

namespace ringd {

enum class DoorTransfer : std::uint8_t {
  kDone,     // all that there was room for, or to send
  kBlocked,  // the kernel has no more
  kEnded,    // the other side has closed the connection
  kFailed,   // errno says why
};

// `Side` is DoorDialler or DoorAnswerer.
template <typename Side>
DoorTransfer SendOutgoing(int fd, Side& side) noexcept {
  while (!side.outgoing().empty()) {
    const std::span<const std::byte> bytes = side.outgoing();
    const ssize_t count = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count >= 0) {
      side.Sent(static_cast<std::size_t>(count));
    } else if (errno != EINTR) {
      return errno == EAGAIN || errno == EWOULDBLOCK ? DoorTransfer::kBlocked
                                                     : DoorTransfer::kFailed;
    }
  }
  return DoorTransfer::kDone;
}

// One receive call at most that gives something: afterwards the side may have more room, or
// something to say.
template <typename Side>
DoorTransfer ReceiveOnce(int fd, Side& side) noexcept {
  const std::span<std::byte> room = side.room();
  if (room.empty()) return DoorTransfer::kDone;
  for (;;) {
    const ssize_t count = ::recv(fd, room.data(), room.size(), MSG_DONTWAIT);
    if (count > 0) {
      side.Received(static_cast<std::size_t>(count));
      return DoorTransfer::kDone;
    }
    if (count == 0) return DoorTransfer::kEnded;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return DoorTransfer::kBlocked;
    if (errno != EINTR) return DoorTransfer::kFailed;
  }
}

}  // namespace ringd

#endif  // RINGD_DAEMON_DOOR_DOOR_BYTES_H_
