#include "backends/collectives/early_messages.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace ringd {
namespace {

// What malloc puts before a block.
constexpr std::uint32_t kAllocatorBytes = 16;

}  // namespace

EarlyMessagePool::~EarlyMessagePool() {
  for (EarlyMessage* message : free_) {
    while (message != nullptr) {
      EarlyMessage* const next = message->next;
      ::operator delete(message);
      message = next;
    }
  }
}

std::uint32_t EarlyMessagePool::SizeClassOf(std::size_t payload_bytes) noexcept {
  const auto fitting = std::lower_bound(kPayloadBytes.begin(), kPayloadBytes.end(), payload_bytes);
  return static_cast<std::uint32_t>(fitting - kPayloadBytes.begin());
}

std::size_t EarlyMessagePool::TakenBytes(std::size_t payload_bytes) noexcept {
  return kAllocatorBytes + sizeof(EarlyMessage) + kPayloadBytes[SizeClassOf(payload_bytes)];
}

EarlyMessage* EarlyMessagePool::Take(const MessageHeader& header, std::size_t payload_bytes) {
  const std::uint32_t size_class = SizeClassOf(payload_bytes);
  EarlyMessage* message = free_[size_class];
  if (message != nullptr) {
    free_[size_class] = message->next;
    spare_bytes_ -= message->taken_bytes;
  } else {
    message = new (::operator new(sizeof(EarlyMessage) + kPayloadBytes[size_class])) EarlyMessage;
    message->taken_bytes = static_cast<std::uint32_t>(TakenBytes(payload_bytes));
  }
  message->next = nullptr;
  message->header = header;
  message->payload_bytes = static_cast<std::uint32_t>(payload_bytes);
  message->size_class = size_class;
  return message;
}

EarlyMessage* EarlyMessagePool::Copy(const MessageHeader& header,
                                     std::span<const std::byte> payload) {
  EarlyMessage* const message = Take(header, payload.size());
  if (!payload.empty()) std::memcpy(message->data(), payload.data(), payload.size());
  return message;
}

void EarlyMessagePool::GiveBack(EarlyMessage* message) noexcept {
  if (spare_bytes_ + message->taken_bytes > kMaxSpareBytes) {
    ::operator delete(message);
    return;
  }
  spare_bytes_ += message->taken_bytes;
  message->next = free_[message->size_class];
  free_[message->size_class] = message;
}

}  // namespace ringd
