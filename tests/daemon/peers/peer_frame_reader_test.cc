#include "daemon/peers/peer_frame_reader.h"

#include <catch2/catch.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace ringd {
namespace {

using Frames = std::vector<std::pair<PeerFrameKind, std::string>>;

std::span<const std::byte> BytesOf(const std::string& text) {
  return std::as_bytes(std::span(text));
}
std::string Message(const std::string& payload) {
  return EncodePeerFrame(PeerFrameKind::kMessage, BytesOf(payload));
}
auto Into(Frames& frames) {
  return [&frames](PeerFrameKind kind, std::span<const std::byte> payload) {
    frames.emplace_back(kind,
                        std::string(reinterpret_cast<const char*>(payload.data()), payload.size()));
    return true;
  };
}

TEST_CASE("PeerFrameReader: frames come out the same, however their bytes come in") {
  std::mt19937 random(11);
  Frames sent;
  std::string bytes;
  for (int i = 0; i < 300; ++i) {
    const std::size_t size = random() % 4 == 0 ? random() % 200'000 : random() % 40;
    std::string payload(size, '\0');
    for (char& byte : payload) byte = static_cast<char>(random());
    bytes += Message(payload);
    sent.emplace_back(PeerFrameKind::kMessage, std::move(payload));
    if (random() % 3 == 0) {
      bytes += EncodePeerFrame(PeerFrameKind::kPing, {});
      sent.emplace_back(PeerFrameKind::kPing, "");
    }
  }
  const std::size_t most = GENERATE(1, 7, 9, 5000, 65'536, 10'000'000);
  const auto budget = std::make_shared<PeerBudget>(std::size_t{1} << 20);
  Frames got;
  {
    PeerFrameReader reader(budget);
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t count = std::min(most == 1 ? 1 : 1 + random() % most, bytes.size() - at);
      REQUIRE(reader.Feed(BytesOf(bytes).subspan(at, count), Into(got)).ok());
      at += count;
    }
  }
  CHECK(got == sent);
  CHECK(budget->used() == 0);
}

TEST_CASE("PeerFrameReader: what has come is counted, not what is promised; and given back") {
  const auto budget = std::make_shared<PeerBudget>(std::size_t{1} << 20);
  Frames frames;
  PeerFrameReader reader(budget);
  const std::string frame = Message(std::string(900'000, 'x'));
  REQUIRE(reader.Feed(BytesOf(frame).first(1000), Into(frames)).ok());
  CHECK(budget->used() < 10'000);
  REQUIRE(reader.Feed(BytesOf(frame).subspan(1000), Into(frames)).ok());
  CHECK(frames.size() == 1);
  CHECK(budget->used() == 0);
}

TEST_CASE("PeerFrameReader: beyond the budget nothing is kept, whoever has used it up") {
  const auto budget = std::make_shared<PeerBudget>(100'000);
  Frames frames;
  PeerFrameReader first(budget);
  PeerFrameReader second(budget);
  const std::string frame = Message(std::string(200'000, 'x'));
  REQUIRE(first.Feed(BytesOf(frame).first(60'000), Into(frames)).ok());
  CHECK(absl::IsResourceExhausted(second.Feed(BytesOf(frame).first(60'000), Into(frames))));
  CHECK(budget->used() <= 100'000);
}

TEST_CASE("PeerFrameReader: what is no frame is said, also behind good ones and in parts") {
  const auto budget = std::make_shared<PeerBudget>(100'000);
  Frames frames;
  PeerFrameReader reader(budget);
  const std::string bytes = Message("good") + std::string("\0\0\0\0\x07\0\0\0", 8);
  const std::size_t cut = GENERATE(0, 5, 13, 19);
  absl::Status status = reader.Feed(BytesOf(bytes).first(cut), Into(frames));
  if (status.ok()) status = reader.Feed(BytesOf(bytes).subspan(cut), Into(frames));
  CHECK(absl::IsInvalidArgument(status));
  CHECK(frames.size() == 1);
}

}  // namespace
}  // namespace ringd
