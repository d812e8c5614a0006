// Messages that came before anybody could use them.
#ifndef RINGD_BACKENDS_COLLECTIVES_HELD_MESSAGES_H_
#define RINGD_BACKENDS_COLLECTIVES_HELD_MESSAGES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backends/collectives/message.h"

namespace ringd {

// A message that was copied off the network. Its payload lies behind it in the same allocation.
struct HeldMessage {
  HeldMessage* next = nullptr;
  MessageHeader header;
  std::uint32_t payload_bytes = 0;
  std::uint32_t size_class = 0;

  std::byte* data() noexcept { return reinterpret_cast<std::byte*>(this + 1); }
  std::span<const std::byte> payload() noexcept { return {data(), payload_bytes}; }
};

// Memory for held messages, of two sizes, allocated when first needed and kept for reuse: in the
// steady state nothing is allocated and no page is touched for the first time.
//
// Thread safety: the progress thread only.
// Ownership: owns every message's memory; all must have been given back before it goes.
class HeldMessagePool {
 public:
  HeldMessagePool() = default;
  HeldMessagePool(const HeldMessagePool&) = delete;
  HeldMessagePool& operator=(const HeldMessagePool&) = delete;
  ~HeldMessagePool();

  // Memory for `payload_bytes` (at most kMaxPayloadBytes), its payload not yet written. Never null:
  // without memory the process ends, as everywhere.
  HeldMessage* Take(const MessageHeader& header, std::size_t payload_bytes);

  // The same, with the payload copied.
  HeldMessage* Copy(const MessageHeader& header, std::span<const std::byte> payload);

  void GiveBack(HeldMessage* message) noexcept;

 private:
  static constexpr std::array<std::size_t, 2> kPayloadBytes = {2048, kMaxPayloadBytes};

  std::array<HeldMessage*, 2> free_ = {};
};

// A first-in, first-out list of held messages.
//
// Ownership: of the messages in it, until taken out; must be empty, or cleared, before it goes.
class HeldMessageList {
 public:
  bool empty() const noexcept { return head_ == nullptr; }
  std::size_t size() const noexcept { return size_; }

  void PushBack(HeldMessage* message) noexcept {
    message->next = nullptr;
    (head_ == nullptr ? head_ : tail_->next) = message;
    tail_ = message;
    ++size_;
  }

  HeldMessage* PopFront() noexcept {
    HeldMessage* const first = head_;
    if (first != nullptr) {
      head_ = first->next;
      --size_;
    }
    return first;
  }

  void Clear(HeldMessagePool& pool) noexcept {
    while (HeldMessage* message = PopFront()) pool.GiveBack(message);
  }

 private:
  HeldMessage* head_ = nullptr;
  HeldMessage* tail_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_COLLECTIVES_HELD_MESSAGES_H_
