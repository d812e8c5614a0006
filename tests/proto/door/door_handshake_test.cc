#include "proto/door/door_handshake.h"

#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <vector>

#include "tests/proto/door/conversation.h"

namespace ringd {
namespace {

// Everything that passed on the way to either side.
struct Recording {
  explicit Recording(Conversation& talk) {
    talk.to_answerer = [this](DoorBytes& bytes) { Append(dialler_said, bytes); };
    talk.to_dialler = [this](DoorBytes& bytes) { Append(answerer_said, bytes); };
  }
  static void Append(DoorBytes& all, const DoorBytes& bytes) {
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  DoorBytes dialler_said;
  DoorBytes answerer_said;
};

DoorBytes Part(const DoorBytes& bytes, std::size_t offset, std::size_t count) {
  REQUIRE(bytes.size() >= offset + count);
  const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(offset);
  return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}

}  // namespace

TEST_CASE("Handshake: two that have the key let each other in and share a session key") {
  Conversation talk = Talk("a secret", "a secret");
  Recording recording(talk);
  talk.Run();
  CHECK(talk.dialler.state() == DoorState::kWelcome);
  CHECK(talk.answerer.state() == DoorState::kWelcome);
  CHECK(talk.dialler.verdict() == DoorVerdict::kWelcome);
  CHECK(talk.dialler.session_key() == talk.answerer.session_key());
  CHECK(talk.dialler.session_key() != DoorKey{});
  CHECK(ReadableName(talk.dialler.answerer().node_name) == "node-b");
  CHECK(talk.dialler.answerer().flags == kDoorHasClusterKey);
  CHECK(ReadableName(talk.answerer.hello().node_name) == "node-a");
  CHECK(talk.answerer.hello().subject == SubjectOfJob());
  CHECK(talk.answerer.hello().flags == kDoorHasJobSecret);
  CHECK(recording.dialler_said.size() == kDoorHelloBytes + kDoorProofBytes);
  CHECK(recording.answerer_said.size() == kDoorChallengeBytes + kDoorVerdictBytes);
}

TEST_CASE("Handshake: session keys and nonces are never the same twice") {
  std::set<DoorKey> keys;
  std::set<DoorBytes> hellos;
  for (int i = 0; i < 50; ++i) {
    Conversation talk = Talk("s", "s");
    Recording recording(talk);
    talk.Run();
    keys.insert(talk.dialler.session_key());
    hellos.insert(Part(recording.dialler_said, 48, 32));
    hellos.insert(Part(recording.answerer_said, 16, 32));
  }
  CHECK(keys.size() == 50);
  CHECK(hellos.size() == 100);
}

TEST_CASE("Handshake: any number of bytes may pass at a time") {
  Conversation talk = Talk("s", "s");
  talk.at_most = GENERATE(1u, 2u, 7u, 31u, 143u);
  talk.Run();
  CHECK(talk.dialler.state() == DoorState::kWelcome);
  CHECK(talk.answerer.state() == DoorState::kWelcome);
  CHECK(talk.dialler.session_key() == talk.answerer.session_key());
}

TEST_CASE("Handshake: a wrong key is told, and nothing is proved to who has it") {
  Conversation talk = Talk("wrong", "right");
  Recording recording(talk);
  talk.Run();
  CHECK(talk.answerer.state() == DoorState::kRefused);
  CHECK(talk.dialler.state() == DoorState::kRefused);
  CHECK(talk.dialler.verdict() == DoorVerdict::kWrongKey);
  CHECK(talk.dialler.session_key() == DoorKey{});
  // The verdict's place for a proof is zero.
  CHECK(Part(recording.answerer_said, kDoorChallengeBytes + 4, 32) == DoorBytes(32));
}

TEST_CASE("Handshake: of several jobs with one id the one with the key is meant") {
  Conversation talk = Talk("s", "s");
  talk.keys = {KeyOf("other"), KeyOf("s"), KeyOf("third"), KeyOf("s")};
  talk.Run();
  CHECK(talk.dialler.state() == DoorState::kWelcome);
  CHECK(talk.answerer.matched() == 1);
}

TEST_CASE("Handshake: a subject that nobody waits for is told, and other refusals") {
  Conversation talk = Talk("s", "s");
  SECTION("no key fits, and that is not for good") {
    Give(talk.answerer, TakeOutgoing(talk.dialler));
    Give(talk.dialler, TakeOutgoing(talk.answerer));
    Give(talk.answerer, TakeOutgoing(talk.dialler));
    talk.answerer.Decide(std::vector{KeyOf("other")}, DoorVerdict::kUnknownSubject);
    Give(talk.dialler, TakeOutgoing(talk.answerer));
    CHECK(talk.dialler.verdict() == DoorVerdict::kUnknownSubject);
  }
  SECTION("full") {
    Give(talk.answerer, TakeOutgoing(talk.dialler));
    Give(talk.dialler, TakeOutgoing(talk.answerer));
    Give(talk.answerer, TakeOutgoing(talk.dialler));
    REQUIRE(talk.answerer.state() == DoorState::kAsked);
    talk.answerer.Refuse(DoorVerdict::kFull);
    Give(talk.dialler, TakeOutgoing(talk.answerer));
    CHECK(talk.dialler.verdict() == DoorVerdict::kFull);
  }
  CHECK(talk.dialler.state() == DoorState::kRefused);
  CHECK(talk.answerer.state() == DoorState::kRefused);
}

TEST_CASE("Handshake: who answers without the key is found out, whatever it says") {
  DoorDialler dialler(KeyOf("s"), ControlIntent());
  DoorAnswerer impostor(0, "node-b");
  Give(impostor, TakeOutgoing(dialler));
  Give(dialler, TakeOutgoing(impostor));
  DoorBytes verdict(kDoorVerdictBytes);
  SECTION("a welcome without a proof") {}
  SECTION("a welcome with the dialler's own proof") {
    const DoorBytes proof = TakeOutgoing(dialler);
    REQUIRE(proof.size() == kDoorProofBytes);
    std::copy(proof.begin(), proof.end(), verdict.begin() + 4);
  }
  SECTION("a verdict that does not exist") { verdict[0] = std::byte{77}; }
  Give(dialler, verdict);
  CHECK(dialler.state() == DoorState::kBroken);
  CHECK_FALSE(dialler.trouble().empty());
  CHECK(dialler.session_key() == DoorKey{});
}

TEST_CASE("Handshake: a recorded conversation lets nobody in") {
  Conversation first = Talk("s", "s");
  Recording recording(first);
  first.Run();
  REQUIRE(first.dialler.state() == DoorState::kWelcome);
  SECTION("as the dialler") {
    DoorAnswerer answerer(kDoorHasClusterKey, "node-b");
    Give(answerer, recording.dialler_said);
    REQUIRE(answerer.state() == DoorState::kAsked);
    const std::vector<DoorKey> keys = {KeyOf("s")};
    answerer.Decide(keys, DoorVerdict::kWrongKey);
    CHECK(answerer.state() == DoorState::kRefused);
    CHECK(answerer.verdict() == DoorVerdict::kWrongKey);
  }
  SECTION("as the answerer") {
    DoorDialler dialler(KeyOf("s"), ControlIntent());
    Give(dialler, recording.answerer_said);
    CHECK(dialler.state() == DoorState::kBroken);
  }
}

TEST_CASE("Handshake: nobody is let in by what he gets back from his own words") {
  // The attacker answers with the dialler's own Hello's nonce and name as a challenge, or dials a
  // node with what that node itself sends: labels and lengths differ.
  DoorAnswerer answerer(0, "node-b");
  Conversation talk = Talk("s", "s");
  Recording recording(talk);
  talk.Run();
  const std::vector<DoorKey> keys = {KeyOf("s")};
  Give(answerer, Part(recording.dialler_said, 0, kDoorHelloBytes));
  SECTION("the proof of an answerer, of another connection") {
    Give(answerer, Part(recording.answerer_said, kDoorChallengeBytes + 4, 32));
  }
  SECTION("the proof that an answerer would give on this one") {
    DoorHelloBytes hello;
    std::copy_n(recording.dialler_said.begin(), hello.size(), hello.begin());
    DoorChallengeBytes challenge;
    const DoorBytes sent = TakeOutgoing(answerer);
    REQUIRE(sent.size() == challenge.size());
    std::copy(sent.begin(), sent.end(), challenge.begin());
    Give(answerer, AnswererProof(keys[0], hello, challenge, DoorVerdict::kWelcome));
  }
  REQUIRE(answerer.state() == DoorState::kAsked);
  answerer.Decide(keys, DoorVerdict::kWrongKey);
  CHECK(answerer.verdict() == DoorVerdict::kWrongKey);
}

TEST_CASE("Handshake: who passes it on and changes one byte of it is found out") {
  // Every byte of every message, the version's and the magic's included.
  const bool of_dialler = GENERATE(true, false);
  const std::size_t count =
      of_dialler ? kDoorHelloBytes + kDoorProofBytes : kDoorChallengeBytes + kDoorVerdictBytes;
  for (std::size_t place = 0; place < count; ++place) {
    INFO((of_dialler ? "dialler's byte " : "answerer's byte ") << place);
    Conversation talk = Talk("s", "s");
    std::size_t passed = 0;
    const auto change = [&](DoorBytes& bytes) {
      if (place >= passed && place < passed + bytes.size()) {
        bytes[place - passed] ^= std::byte{1};
      }
      passed += bytes.size();
    };
    (of_dialler ? talk.to_answerer : talk.to_dialler) = change;
    talk.Run();
    CHECK(talk.dialler.state() != DoorState::kWelcome);
    if (of_dialler || place < kDoorChallengeBytes) {
      CHECK(talk.answerer.state() != DoorState::kWelcome);
    }
    CHECK(talk.dialler.session_key() == DoorKey{});
  }
}

TEST_CASE("Handshake: flags can't be changed on the way") {
  Conversation talk = Talk("s", "s");
  talk.to_answerer = [&](DoorBytes& bytes) {
    if (bytes.size() == kDoorHelloBytes) bytes[12] = std::byte{0};
  };
  talk.Run();
  CHECK(talk.answerer.hello().flags == 0);
  CHECK(talk.answerer.verdict() == DoorVerdict::kWrongKey);
}

TEST_CASE("Handshake: another version is told to both sides") {
  SECTION("a dialler of another one, whose Hello is shorter") {
    DoorAnswerer answerer(0, "node-b");
    DoorBytes hello(12);
    std::transform(kDoorMagic.begin(), kDoorMagic.end(), hello.begin(),
                   [](char c) { return static_cast<std::byte>(c); });
    hello[8] = std::byte{kDoorVersion + 1};
    Give(answerer, hello);
    CHECK(answerer.state() == DoorState::kRefused);
    CHECK(answerer.verdict() == DoorVerdict::kVersion);
    CHECK(answerer.hello().version == kDoorVersion + 1);
    const DoorBytes said = TakeOutgoing(answerer);
    REQUIRE(said.size() == kDoorChallengeBytes + kDoorVerdictBytes);
    CHECK(said[8] == std::byte{kDoorVersion});
    CHECK(said[kDoorChallengeBytes] == std::byte{4});
    CHECK(answerer.room().empty());
  }
  SECTION("an answerer of another one, as soon as its version has come") {
    DoorDialler dialler(KeyOf("s"), ControlIntent());
    DoorChallenge challenge;
    challenge.version = 0x0203;
    const DoorChallengeBytes bytes = Encode(challenge);
    Give(dialler, std::span(bytes).first(kDoorPrefixBytes));
    CHECK(dialler.state() == DoorState::kRefused);
    CHECK(dialler.verdict() == DoorVerdict::kVersion);
    CHECK(dialler.answerer().version == 0x0203);
    CHECK(dialler.room().empty());
  }
}

TEST_CASE("Handshake: what is no ringd is hung up on at its first wrong byte") {
  DoorAnswerer answerer(0, "node-b");
  DoorDialler dialler(KeyOf("s"), ControlIntent());
  const std::string other = "RINGDOOM";
  for (std::size_t i = 0; i < other.size(); ++i) {
    CHECK(answerer.state() == DoorState::kTalking);
    CHECK(dialler.state() == DoorState::kTalking);
    Give(answerer, std::as_bytes(std::span(other).subspan(i, 1)));
    Give(dialler, std::as_bytes(std::span(other).subspan(i, 1)));
  }
  CHECK(answerer.state() == DoorState::kBroken);
  CHECK(dialler.state() == DoorState::kBroken);
  CHECK(answerer.outgoing().empty());
}

TEST_CASE("Handshake: neither side takes what comes behind it") {
  Conversation talk = Talk("s", "s");
  Recording recording(talk);
  talk.Run();
  CHECK(talk.answerer.room().empty());
  CHECK(talk.dialler.room().empty());
  CHECK(Give(talk.answerer, DoorBytes(1)) == 0);
  CHECK(Give(talk.dialler, DoorBytes(1)) == 0);
  // Also if it comes at once with what is awaited.
  DoorAnswerer answerer(0, "node-b");
  DoorBytes much = recording.dialler_said;
  much.resize(4096);
  CHECK(Give(answerer, much) == kDoorHelloBytes + kDoorProofBytes);
}

TEST_CASE("Handshake: with no cluster key and no secret the key is the same everywhere") {
  // So it proves nothing: whoever allows that says so (insecure_peers).
  Conversation talk = Talk("", "");
  talk.Run();
  CHECK(talk.dialler.state() == DoorState::kWelcome);
}

}  // namespace ringd
