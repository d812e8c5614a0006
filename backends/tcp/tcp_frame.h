// What is written to a connection: a head and a payload, again and again.
#ifndef RINGD_BACKENDS_TCP_TCP_FRAME_H_
#define RINGD_BACKENDS_TCP_TCP_FRAME_H_

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "backends/collectives/message.h"

namespace ringd {

enum class FrameKind : std::uint32_t {
  kMessage = 0,
  kGoodbye = 1,  // the sender's communicator has closed: the last frame of this connection
};

// Copied as it stands; the payload follows.
struct FrameHead {
  MessageHeader message;
  std::uint32_t payload_bytes = 0;
  FrameKind kind = FrameKind::kMessage;
};

static_assert(sizeof(FrameHead) == 56 && std::is_trivially_copyable_v<FrameHead>);

// Whose frames a connection carries. All come from `peer` and are for `self`.
struct FrameScope {
  std::uint64_t wire_id = 0;
  std::int32_t peer = 0;
  std::int32_t self = 0;
};

// What is wrong with a head that came in, to go on after the sender's name; null: nothing.
constexpr const char* ProblemOf(const FrameHead& head, const FrameScope& scope) noexcept {
  const MessageHeader& message = head.message;
  if (message.magic != kMessageMagic) return "sends what is no message (wrong magic)";
  if (message.wire_id != scope.wire_id) return "sends a message of another job";
  if (message.source != scope.peer) return "sends a message in another node's name";
  if (message.destination != scope.self) return "sends a message for another node";
  if (head.payload_bytes > kMaxPayloadBytes) return "sends a message longer than any may be";
  if (head.kind == FrameKind::kGoodbye) {
    return head.payload_bytes == 0 ? nullptr : "says goodbye with a payload";
  }
  if (head.kind != FrameKind::kMessage) return "sends a frame of no known kind";
  if (message.type != MessageType::kData && message.type != MessageType::kGrant) {
    return "sends a message of no known type";
  }
  return nullptr;
}

// The frame that ends what `scope.self` sends.
constexpr FrameHead GoodbyeOf(const FrameScope& scope) noexcept {
  FrameHead head;
  head.kind = FrameKind::kGoodbye;
  head.message.wire_id = scope.wire_id;
  head.message.source = scope.self;
  head.message.destination = scope.peer;
  return head;
}

}  // namespace ringd

#endif  // RINGD_BACKENDS_TCP_TCP_FRAME_H_
