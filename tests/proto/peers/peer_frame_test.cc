#include "proto/peers/peer_frame.h"

#include <catch2/catch.hpp>
#include <span>
#include <string>

namespace ringd {
namespace {

std::span<const std::byte> BytesOf(const std::string& text) {
  return std::as_bytes(std::span(text));
}
std::optional<PeerFrameHeader> HeaderOf(const std::string& frame) {
  return DecodePeerFrameHeader(BytesOf(frame).first<kPeerFrameHeaderBytes>());
}

TEST_CASE("Peer frame: eight bytes of header, little endian, and the payload") {
  const std::string frame =
      EncodePeerFrame(PeerFrameKind::kMessage, BytesOf(std::string(300, 'x')));
  CHECK(frame.substr(0, 8) == std::string("\x2c\x01\0\0\x01\0\0\0", 8));
  CHECK(frame.substr(8) == std::string(300, 'x'));
  const auto header = HeaderOf(frame);
  REQUIRE(header.has_value());
  CHECK(header->payload_bytes == 300);
  CHECK(header->kind == PeerFrameKind::kMessage);
}

TEST_CASE("Peer frame: a payload that its kind can't have makes no header") {
  CHECK(HeaderOf(std::string("\0\0\0\x02\x01\0\0\0", 8)).has_value());          // 32 MiB
  CHECK_FALSE(HeaderOf(std::string("\x01\0\0\x02\x01\0\0\0", 8)).has_value());  // and one
  CHECK_FALSE(HeaderOf(std::string("\x01\0\0\0\x03\0\0\0", 8)).has_value());
  CHECK_FALSE(HeaderOf(std::string("\x03\0\0\0\x04\0\0\0", 8)).has_value());
  CHECK(HeaderOf(std::string("\x04\x08\0\0\x04\0\0\0", 8)).has_value());
  CHECK_FALSE(HeaderOf(std::string("\x05\x08\0\0\x04\0\0\0", 8)).has_value());
  CHECK_FALSE(HeaderOf(std::string("\0\0\0\0\0\0\0\0", 8)).has_value());
  CHECK_FALSE(HeaderOf(std::string("\0\0\0\0\x01\0\x01\0", 8)).has_value());
}

TEST_CASE("Peer frame: an end says code and text, and another code than absl's is unknown") {
  const absl::Status reason = absl::AbortedError("rank 3 was killed");
  std::string frame = EncodePeerEnd(reason);
  REQUIRE(HeaderOf(frame).has_value());
  CHECK(DecodePeerEnd(BytesOf(frame).subspan(kPeerFrameHeaderBytes)) == reason);
  frame[kPeerFrameHeaderBytes] = 99;
  CHECK(DecodePeerEnd(BytesOf(frame).subspan(kPeerFrameHeaderBytes)).code() ==
        absl::StatusCode::kUnknown);
  CHECK(DecodePeerEnd(BytesOf(EncodePeerEnd(absl::OkStatus())).subspan(8)).ok());
}

TEST_CASE("Peer frame: the text of an end is cut between two characters") {
  std::string text = "x";
  for (int i = 0; i < 2000; ++i) text += "ü";
  const std::string frame = EncodePeerEnd(absl::AbortedError(text));
  REQUIRE(HeaderOf(frame).has_value());
  const absl::Status heard = DecodePeerEnd(BytesOf(frame).subspan(kPeerFrameHeaderBytes));
  CHECK(std::string(heard.message()) == text.substr(0, 2047));
}

}  // namespace
}  // namespace ringd
