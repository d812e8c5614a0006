// A connection that came to the door and has not yet proved anything.
#ifndef RINGD_DAEMON_DOOR_STRANGER_H_
#define RINGD_DAEMON_DOOR_STRANGER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "daemon/door/door_socket.h"
#include "proto/base/clock.h"
#include "proto/base/unique_fd.h"
#include "proto/door/door_handshake.h"

namespace ringd {

// Thread safety: none; the door's thread owns it.
// Trust: takes no byte more than the handshake's, but for a few behind a refusal, which are
//   dropped; nothing blocks.
class Stranger {
 public:
  enum class Progress : std::uint8_t {
    kWaiting,
    kAsked,   // it has said all: Decide or Refuse on answerer(), then Advance again; or let it wait
    kProven,  // and it has been told so: take the socket
    kGone,    // for why()
  };

  Stranger(AcceptedSocket accepted, const DoorAnswerer& answerer, Clock::time_point deadline);

  // Receives and sends what can be.
  Progress Advance();

  // Lets in whoever has one of the keys, on kAsked.
  void Decide(const std::vector<DoorKey>& keys, DoorVerdict otherwise) noexcept;
  DoorAnswerer& answerer() noexcept { return answerer_; }
  const DoorAnswerer& answerer() const noexcept { return answerer_; }
  int socket() const noexcept { return socket_.get(); }
  // Of one that is proven.
  const DoorKey& key() const noexcept { return key_; }
  UniqueFd TakeSocket() noexcept { return std::move(socket_); }
  const std::string& source() const noexcept { return source_; }
  Clock::time_point deadline() const noexcept { return deadline_; }
  // True if the other end is closed.
  bool HasClosed() const noexcept;
  // True from the moment when its refusal has been sent.
  bool refused() const noexcept { return refused_; }
  absl::string_view why() const noexcept { return why_; }
  // "10.0.0.2 port 40001", with the name that it gave.
  std::string Describe() const;

 private:
  // Behind a refusal, which would be lost if the connection were closed with words of the other
  // side unread.
  static constexpr std::size_t kMostDropped = 512;

  Progress Linger();
  Progress Gone(absl::string_view why);

  UniqueFd socket_;
  const std::string source_;
  const std::string from_;
  const Clock::time_point deadline_;
  DoorAnswerer answerer_;
  DoorKey key_{};
  bool refused_ = false;
  std::size_t dropped_ = 0;
  absl::string_view why_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_DOOR_STRANGER_H_
