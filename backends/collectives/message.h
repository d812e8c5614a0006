// The head of every message between the backends of two nodes.
#ifndef RINGD_BACKENDS_COLLECTIVES_MESSAGE_H_
#define RINGD_BACKENDS_COLLECTIVES_MESSAGE_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "backends/collective_request.h"
#include "proto/types/ids.h"

namespace ringd {

static_assert(std::endian::native == std::endian::little, "messages are little-endian");

inline constexpr std::uint32_t kMessageMagic = 0x32676e52;  // "Rng2"; the digit is the version

// The longest payload of one message. A backend carries this in one piece without copying it
// together from fragments; larger transfers are cut into such messages by the algorithms.
inline constexpr std::uint32_t kMaxPayloadBytes = 128 * 1024;

enum class MessageType : std::uint16_t {
  kData = 1,  // `index`: which piece, as sender and receiver number them alike; the payload follows
  kGrant = 2,  // `index`: how many kData messages of this operation the receiver may send in all
};

// Copied as it stands. Written by the sender; whoever receives it checks every field.
struct MessageHeader {
  std::uint32_t magic = kMessageMagic;
  MessageType type = MessageType::kData;
  std::uint16_t reserved = 0;
  std::uint64_t wire_id = 0;  // job and generation
  OperationId operation;
  std::uint32_t index = 0;
  std::int32_t source = 0;       // node
  std::int32_t destination = 0;  // node
  std::uint32_t reserved2 = 0;
  std::uint64_t fingerprint = 0;  // of the request: nodes that disagree find out, see Fingerprint()
};

static_assert(sizeof(MessageHeader) == 48 && std::is_trivially_copyable_v<MessageHeader>);

// A digest of what all nodes must have agreed on before they post a request, or of what shows them
// that they don't agree (CollectiveRequest::description).
constexpr std::uint64_t Fingerprint(const CollectiveRequest& request) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a, by words
  const std::uint64_t words[] = {
      static_cast<std::uint64_t>(request.kind),
      static_cast<std::uint64_t>(request.data_type),
      static_cast<std::uint64_t>(request.op),
      request.element_count,
      static_cast<std::uint64_t>(static_cast<std::uint32_t>(request.root.value())),
      static_cast<std::uint64_t>(request.algorithm),
      request.description};
  for (std::uint64_t word : words) {
    hash = (hash ^ word) * 0x100000001b3u;
    hash ^= hash >> 29;
  }
  for (const ByteRange& block : request.blocks) {
    hash = (hash ^ block.begin) * 0x100000001b3u;
    hash = (hash ^ block.end) * 0x100000001b3u;
    hash ^= hash >> 29;
  }
  return hash ^ (hash >> 32);
}

}  // namespace ringd

#endif  // RINGD_BACKENDS_COLLECTIVES_MESSAGE_H_
