#include "proto/peers/peer_frame.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/string_view.h"
#include "proto/base/text.h"

namespace ringd {
namespace {

// A kEnd's code before its text.
constexpr std::size_t kCodeBytes = 4;
constexpr std::uint32_t kLastCode = static_cast<std::uint32_t>(absl::StatusCode::kUnauthenticated);

std::uint32_t Load(const std::byte* bytes) noexcept {
  std::uint32_t value = 0;
  for (int i = 3; i >= 0; --i) value = value << 8 | static_cast<std::uint32_t>(bytes[i]);
  return value;
}

void Append(std::string& frame, std::uint32_t value) {
  for (int i = 0; i < 4; ++i) frame.push_back(static_cast<char>(value >> (8 * i)));
}

void AppendHeader(std::string& frame, PeerFrameKind kind, std::size_t payload_bytes) {
  Append(frame, static_cast<std::uint32_t>(payload_bytes));
  frame.push_back(static_cast<char>(kind));
  frame.append(3, '\0');
}

}  // namespace

std::optional<PeerFrameHeader> DecodePeerFrameHeader(
    std::span<const std::byte, kPeerFrameHeaderBytes> bytes) noexcept {
  const PeerFrameHeader header{Load(bytes.data()), static_cast<PeerFrameKind>(bytes[4])};
  if (bytes[5] != std::byte{} || bytes[6] != std::byte{} || bytes[7] != std::byte{}) {
    return std::nullopt;
  }
  bool fits = false;
  switch (header.kind) {
    case PeerFrameKind::kMessage:
      fits = header.payload_bytes <= kMaxPeerMessageBytes;
      break;
    case PeerFrameKind::kPing:
    case PeerFrameKind::kPong:
      fits = header.payload_bytes == 0;
      break;
    case PeerFrameKind::kEnd:
      fits = header.payload_bytes >= kCodeBytes &&
             header.payload_bytes <= kCodeBytes + kMaxPeerReasonBytes;
      break;
  }
  return fits ? std::optional(header) : std::nullopt;
}

std::string EncodePeerFrame(PeerFrameKind kind, std::span<const std::byte> payload) {
  std::string frame;
  frame.reserve(kPeerFrameHeaderBytes + payload.size());
  AppendHeader(frame, kind, payload.size());
  frame.append(reinterpret_cast<const char*>(payload.data()), payload.size());
  return frame;
}

std::string EncodePeerEnd(const absl::Status& reason) {
  const absl::string_view text = CutToLength(reason.message(), kMaxPeerReasonBytes);
  std::string frame;
  AppendHeader(frame, PeerFrameKind::kEnd, kCodeBytes + text.size());
  Append(frame, static_cast<std::uint32_t>(reason.code()));
  frame.append(text.data(), text.size());
  return frame;
}

absl::Status DecodePeerEnd(std::span<const std::byte> payload) {
  const std::uint32_t code = Load(payload.data());
  const absl::string_view text(reinterpret_cast<const char*>(payload.data()) + kCodeBytes,
                               payload.size() - kCodeBytes);
  return absl::Status(
      code <= kLastCode ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown, text);
}

}  // namespace ringd
