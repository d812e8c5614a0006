// Frames on the connection of a control stream, once both ringds have proved the job's key on it
// (proto/door). Either side sends frames when it likes.
#ifndef RINGD_PROTO_PEERS_PEER_FRAME_H_
#define RINGD_PROTO_PEERS_PEER_FRAME_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"

namespace ringd {

enum class PeerFrameKind : std::uint8_t {
  kMessage = 1,  // a NodeMessage or CoordinatorMessage of proto/rpc/peer.proto
  kPing = 2,     // is answered at once by a pong; both are empty
  kPong = 3,
  // The sender's last frame: a PeerEnd. With kDataLoss it is its supervisor's word on how it ended,
  // perhaps behind a frame that was sent in part (daemon/peers/last_bytes.h).
  kEnd = 4,
};

// Eight bytes, little endian: the payload's size in four, the kind, and three zeros.
struct PeerFrameHeader {
  std::uint32_t payload_bytes = 0;
  PeerFrameKind kind = PeerFrameKind::kMessage;
};
inline constexpr std::size_t kPeerFrameHeaderBytes = 8;

// A schedule of ten thousand tensors with long names stays below this.
inline constexpr std::uint32_t kMaxPeerMessageBytes = std::uint32_t{32} << 20;
// The text of a kEnd.
inline constexpr std::size_t kMaxPeerReasonBytes = 2048;

// Nothing if these bytes are no header: an unknown kind, or a payload of another size than the kind
// can have.
std::optional<PeerFrameHeader> DecodePeerFrameHeader(
    std::span<const std::byte, kPeerFrameHeaderBytes> bytes) noexcept;

// The whole frame. Requirement: `payload` is of a size that the kind can have.
std::string EncodePeerFrame(PeerFrameKind kind, std::span<const std::byte> payload);
// With the reason's code, and its text, cut between two characters to what fits.
std::string EncodePeerEnd(const absl::Status& reason);
// Another code than absl's is kUnknown. `payload` is that of a kEnd.
absl::Status DecodePeerEnd(std::span<const std::byte> payload);

}  // namespace ringd

#endif  // RINGD_PROTO_PEERS_PEER_FRAME_H_
