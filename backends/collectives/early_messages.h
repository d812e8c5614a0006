// Messages that came before anybody could use them.
#ifndef RINGD_BACKENDS_COLLECTIVES_EARLY_MESSAGES_H_
#define RINGD_BACKENDS_COLLECTIVES_EARLY_MESSAGES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backends/collectives/message.h"

namespace ringd {

// A message that was copied off the network. Its payload lies behind it in the same allocation.
struct EarlyMessage {
  EarlyMessage* next = nullptr;
  MessageHeader header;
  std::uint32_t payload_bytes = 0;
  std::uint32_t size_class = 0;
  std::uint32_t taken_bytes = 0;  // of memory, this head and the allocator's included

  std::byte* data() noexcept { return reinterpret_cast<std::byte*>(this + 1); }
  std::span<const std::byte> payload() noexcept { return {data(), payload_bytes}; }
};

// Memory for early messages, of a few sizes, allocated when first needed and kept for reuse, up to
// kMaxSpareBytes: in the steady state nothing is allocated and no page is touched for the first
// time.
//
// A message takes up to eight times its payload, and 336 bytes if it is a short one. Whoever bounds
// what others may make it hold counts EarlyMessage::taken_bytes, not payloads.
//
// Thread safety: the progress thread only.
// Ownership: owns every message's memory; all must have been given back before it goes.
class EarlyMessagePool {
 public:
  // More than a burst among correct nodes leaves behind; a flood's memory goes back to the system.
  static constexpr std::size_t kMaxSpareBytes = std::size_t{64} << 20;

  EarlyMessagePool() = default;
  EarlyMessagePool(const EarlyMessagePool&) = delete;
  EarlyMessagePool& operator=(const EarlyMessagePool&) = delete;
  ~EarlyMessagePool();

  // Memory for `payload_bytes` (at most kMaxPayloadBytes), its payload not yet written. Never null:
  // without memory the process ends, as everywhere.
  EarlyMessage* Take(const MessageHeader& header, std::size_t payload_bytes);

  // The same, with the payload copied.
  EarlyMessage* Copy(const MessageHeader& header, std::span<const std::byte> payload);

  void GiveBack(EarlyMessage* message) noexcept;

  // What a message with such a payload takes: EarlyMessage::taken_bytes.
  static std::size_t TakenBytes(std::size_t payload_bytes) noexcept;

  // What is kept for reuse.
  std::size_t spare_bytes() const noexcept { return spare_bytes_; }

 private:
  static std::uint32_t SizeClassOf(std::size_t payload_bytes) noexcept;

  static constexpr std::array<std::uint32_t, 6> kPayloadBytes = {256,   2048,  16384,
                                                                 32768, 65536, kMaxPayloadBytes};

  std::array<EarlyMessage*, kPayloadBytes.size()> free_ = {};
  std::size_t spare_bytes_ = 0;
};

// A first-in, first-out list of early messages.
//
// Ownership: of the messages in it, until taken out; must be empty, or cleared, before it goes.
class EarlyMessageList {
 public:
  bool empty() const noexcept { return head_ == nullptr; }
  // The first one; the others are its `next`.
  const EarlyMessage* first() const noexcept { return head_; }
  std::size_t size() const noexcept { return size_; }
  // The memory that the messages take.
  std::size_t taken_bytes() const noexcept { return taken_bytes_; }

  void PushBack(EarlyMessage* message) noexcept {
    message->next = nullptr;
    (head_ == nullptr ? head_ : tail_->next) = message;
    tail_ = message;
    ++size_;
    taken_bytes_ += message->taken_bytes;
  }

  EarlyMessage* PopFront() noexcept {
    EarlyMessage* const first = head_;
    if (first != nullptr) {
      head_ = first->next;
      --size_;
      taken_bytes_ -= first->taken_bytes;
    }
    return first;
  }

  void Clear(EarlyMessagePool& pool) noexcept {
    while (EarlyMessage* message = PopFront()) pool.GiveBack(message);
  }

 private:
  EarlyMessage* head_ = nullptr;
  EarlyMessage* tail_ = nullptr;
  std::size_t size_ = 0;
  std::size_t taken_bytes_ = 0;
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_COLLECTIVES_EARLY_MESSAGES_H_
