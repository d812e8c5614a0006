#include "backends/collectives/held_messages.h"

#include <cstring>
#include <new>

namespace ringd {

HeldMessagePool::~HeldMessagePool() {
  for (HeldMessage* message : free_) {
    while (message != nullptr) {
      HeldMessage* const next = message->next;
      ::operator delete(message);
      message = next;
    }
  }
}

HeldMessage* HeldMessagePool::Take(const MessageHeader& header, std::size_t payload_bytes) {
  const std::uint32_t size_class = payload_bytes <= kPayloadBytes[0] ? 0 : 1;
  HeldMessage* message = free_[size_class];
  if (message != nullptr) {
    free_[size_class] = message->next;
  } else {
    message = new (::operator new(sizeof(HeldMessage) + kPayloadBytes[size_class])) HeldMessage;
  }
  message->next = nullptr;
  message->header = header;
  message->payload_bytes = static_cast<std::uint32_t>(payload_bytes);
  message->size_class = size_class;
  return message;
}

HeldMessage* HeldMessagePool::Copy(const MessageHeader& header,
                                   std::span<const std::byte> payload) {
  HeldMessage* const message = Take(header, payload.size());
  if (!payload.empty()) std::memcpy(message->data(), payload.data(), payload.size());
  return message;
}

void HeldMessagePool::GiveBack(HeldMessage* message) noexcept {
  message->next = free_[message->size_class];
  free_[message->size_class] = message;
}

}  // namespace ringd
