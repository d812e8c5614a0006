// Both machines against bytes by chance, and against conversations that are nearly right.
#include <catch2/catch.hpp>
#include <random>
#include <vector>

#include "tests/proto/door/conversation.h"

namespace ringd {
namespace {

constexpr int kRounds = 20'000;

class Chance {
 public:
  explicit Chance(std::uint32_t seed) : generator_(seed) {}
  std::size_t Below(std::size_t bound) { return generator_() % bound; }
  std::byte Byte() { return static_cast<std::byte>(generator_() & 0xff); }
  DoorBytes Bytes(std::size_t count) {
    DoorBytes bytes(count);
    for (std::byte& byte : bytes) byte = Byte();
    return bytes;
  }

 private:
  std::mt19937 generator_;
};

// Deletes, doubles, changes or appends something.
void Spoil(DoorBytes& bytes, Chance& chance) {
  const std::size_t place = bytes.empty() ? 0 : chance.Below(bytes.size());
  const auto at = bytes.begin() + static_cast<std::ptrdiff_t>(place);
  switch (chance.Below(5)) {
    case 0:
      if (!bytes.empty()) bytes[place] ^= std::byte{1} << chance.Below(8);
      break;
    case 1:
      bytes.resize(place);
      break;
    case 2:
      bytes.insert(at, chance.Byte());
      break;
    case 3: {
      const DoorBytes more = chance.Bytes(chance.Below(300));
      bytes.insert(bytes.end(), more.begin(), more.end());
      break;
    }
    default:
      bytes = chance.Bytes(chance.Below(300));
  }
}

}  // namespace

TEST_CASE("Handshake: bytes by chance let nobody in and break nothing") {
  Chance chance(1);
  const std::vector<DoorKey> keys = {KeyOf("s"), KeyOf("t")};
  for (int round = 0; round < kRounds; ++round) {
    DoorAnswerer answerer(0, "node-b");
    DoorDialler dialler(KeyOf("s"), ControlIntent());
    DoorBytes bytes = chance.Bytes(1 + chance.Below(400));
    if (chance.Below(4) != 0) {
      // Far enough in to be listened to.
      bytes.resize(std::max<std::size_t>(bytes.size(), kDoorPrefixBytes));
      std::transform(kDoorMagic.begin(), kDoorMagic.end(), bytes.begin(),
                     [](char c) { return static_cast<std::byte>(c); });
      bytes[8] = std::byte{kDoorVersion};
      bytes[9] = std::byte{0};
    }
    const std::size_t at_most = 1 + chance.Below(200);
    CHECK(Give(answerer, bytes, at_most) <= kDoorHelloBytes + kDoorProofBytes);
    CHECK(Give(dialler, bytes, at_most) <= kDoorChallengeBytes + kDoorVerdictBytes);
    if (answerer.state() == DoorState::kAsked) answerer.Decide(keys, DoorVerdict::kWrongKey);
    REQUIRE(answerer.state() != DoorState::kWelcome);
    REQUIRE(dialler.state() != DoorState::kWelcome);
    REQUIRE(answerer.outgoing().size() <= kDoorChallengeBytes + kDoorVerdictBytes);
    REQUIRE(dialler.outgoing().size() <= kDoorHelloBytes + kDoorProofBytes);
  }
}

TEST_CASE("Handshake: one that is spoilt on the way never ends in a welcome on false words") {
  Chance chance(2);
  for (int round = 0; round < kRounds; ++round) {
    Conversation talk = Talk("s", "s");
    talk.at_most = chance.Below(2) == 0 ? SIZE_MAX : 1 + chance.Below(150);
    DoorBytes said;
    DoorBytes heard;
    std::size_t left = chance.Below(4);
    talk.to_answerer = [&](DoorBytes& bytes) {
      said.insert(said.end(), bytes.begin(), bytes.end());
      if (!bytes.empty() && left-- == 0) Spoil(bytes, chance);
      heard.insert(heard.end(), bytes.begin(), bytes.end());
    };
    talk.to_dialler = [&](DoorBytes& bytes) {
      if (!bytes.empty() && left-- == 0) Spoil(bytes, chance);
    };
    talk.Run();
    const bool dialler_in = talk.dialler.state() == DoorState::kWelcome;
    const bool answerer_in = talk.answerer.state() == DoorState::kWelcome;
    // The answerer may believe a dialler whose welcome was then lost, never one that it did not
    // hear.
    if (dialler_in) REQUIRE(answerer_in);
    if (dialler_in) REQUIRE(talk.dialler.session_key() == talk.answerer.session_key());
    if (answerer_in) {
      heard.resize(std::min(heard.size(), kDoorHelloBytes + kDoorProofBytes));
      REQUIRE(heard == said);
    }
  }
}

}  // namespace ringd
