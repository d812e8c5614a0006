// What one side of a handshake has to send, and what it waits for.
//
// Internal to proto/door.
#ifndef RINGD_PROTO_DOOR_DOOR_BUFFER_H_
#define RINGD_PROTO_DOOR_DOOR_BUFFER_H_

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>
#include <span>

#include "proto/door/door_message.h"

namespace ringd {

// Thread safety: none.
// Invariant: never more is asked for than the message that is awaited.
class DoorBuffer {
 public:
  // ---- what comes ----
  // The next message has so many bytes; 0: none is to come.
  void Await(std::size_t count) noexcept {
    awaited_ = count;
    filled_ = 0;
  }
  std::span<std::byte> room() noexcept {
    return std::span(in_).subspan(filled_, awaited_ - filled_);
  }
  void Received(std::size_t count) noexcept {
    assert(count <= awaited_ - filled_);
    filled_ += count;
  }
  bool whole() const noexcept { return awaited_ > 0 && filled_ == awaited_; }
  std::span<const std::byte> received() const noexcept { return std::span(in_).first(filled_); }
  // Requirement: so many have come.
  template <std::size_t kCount>
  std::span<const std::byte, kCount> First() const noexcept {
    return std::span(in_).template first<kCount>();
  }

  // ---- what goes ----
  void Send(std::span<const std::byte> bytes) noexcept {
    if (sent_ == queued_) sent_ = queued_ = 0;
    assert(bytes.size() <= out_.size() - queued_);
    std::copy(bytes.begin(), bytes.end(), out_.begin() + static_cast<std::ptrdiff_t>(queued_));
    queued_ += bytes.size();
  }
  std::span<const std::byte> outgoing() const noexcept {
    return std::span(out_).subspan(sent_, queued_ - sent_);
  }
  void Sent(std::size_t count) noexcept {
    assert(count <= queued_ - sent_);
    sent_ += count;
  }

 private:
  std::array<std::byte, kDoorHelloBytes> in_{};  // the longest
  std::size_t awaited_ = 0;
  std::size_t filled_ = 0;
  // A Hello and a Proof, or a Challenge and a Verdict.
  std::array<std::byte, kDoorHelloBytes + kDoorProofBytes> out_{};
  std::size_t queued_ = 0;
  std::size_t sent_ = 0;
};

}  // namespace ringd

#endif  // RINGD_PROTO_DOOR_DOOR_BUFFER_H_
