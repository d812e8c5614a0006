// A connection on ringd's socket that has not yet said what it wants.
#ifndef RINGD_DAEMON_ATTACH_PENDING_CONNECTION_H_
#define RINGD_DAEMON_ATTACH_PENDING_CONNECTION_H_

#include <cstddef>
#include <cstdint>
#include <utility>

#include "proto/attach/handshake.h"
#include "proto/base/clock.h"
#include "proto/base/unique_fd.h"
#include "proto/base/unix_socket.h"

namespace ringd {

// Thread safety: none; the listener's thread owns it.
// Trust: everything read is input; at most an AttachRequest is read, and nothing blocks.
class PendingConnection {
 public:
  enum class Progress : std::uint8_t {
    kWaiting,  // for more bytes
    kGrpc,     // it speaks gRPC; nothing has been taken from the socket
    kAttach,   // request() is whole
    kUnknown,  // it speaks neither
    kClosed,   // it ended, or failed
  };

  // `socket` is non-blocking.
  PendingConnection(UniqueFd socket, const PeerCredentials& peer,
                    Clock::time_point deadline) noexcept
      : socket_(std::move(socket)), peer_(peer), deadline_(deadline) {}

  // Reads what has come.
  Progress Read() noexcept;

  // It has said what it wants, and waits to hear whether its user is admitted. Nothing is read
  // meanwhile.
  void Park(Progress wanted, Clock::time_point deadline) noexcept {
    if (!parked()) deadline_ = deadline;
    parked_ = wanted;
  }
  bool parked() const noexcept { return parked_ != Progress::kWaiting; }
  Progress wanted() const noexcept { return parked_; }

  const AttachRequest& request() const noexcept { return request_; }
  const PeerCredentials& peer() const noexcept { return peer_; }
  Clock::time_point deadline() const noexcept { return deadline_; }
  int socket() const noexcept { return socket_.get(); }
  UniqueFd TakeSocket() noexcept { return std::move(socket_); }

 private:
  Progress ReadRequest() noexcept;

  UniqueFd socket_;
  PeerCredentials peer_;
  Clock::time_point deadline_;
  AttachRequest request_{};
  Progress parked_ = Progress::kWaiting;  // else kGrpc or kAttach
  std::size_t received_ = 0;              // bytes of request_
};

}  // namespace ringd

#endif  // RINGD_DAEMON_ATTACH_PENDING_CONNECTION_H_
