#include "proto/door/door_key.h"

#include <catch2/catch.hpp>
#include <set>
#include <string>

#include "absl/strings/escaping.h"

// The expected values were computed by another program (Python's hmac) from the words of the
// README.

namespace ringd {
namespace {

constexpr std::uint64_t kWireId = 0x0102030405060708;

std::string Hex(const Sha256Digest& digest) { return absl::BytesToHexString(AsText(digest)); }

DoorKey SomeJobKey() { return JobKey(std::string(32, 'c'), "train", "secret", 1000); }

DoorNonce Counting(int first) {
  DoorNonce nonce;
  for (std::byte& byte : nonce) byte = static_cast<std::byte>(first++);
  return nonce;
}

DoorHelloBytes SomeHello() {
  DoorHello hello;
  hello.purpose = DoorPurpose::kWire;
  hello.flags = kDoorHasClusterKey | kDoorHasJobSecret;
  hello.subject = ToSubject({.wire_id = kWireId, .from = 1, .to = 0, .stream = 2});
  hello.nonce = Counting(0);
  hello.node_name = ToDoorName("node-a");
  return Encode(hello);
}

DoorChallengeBytes SomeChallenge() {
  DoorChallenge challenge;
  challenge.flags = kDoorHasClusterKey;
  challenge.nonce = Counting(32);
  challenge.node_name = ToDoorName("node-b");
  return Encode(challenge);
}

}  // namespace

TEST_CASE("JobKey and the keys of its purposes: have the values that the header says") {
  CHECK(Hex(SomeJobKey()) == "d959004475fe99b0a688785b39e00cbd2efa29b2319f4da3d59f089a840303fa");
  CHECK(Hex(KeyForControl(SomeJobKey())) ==
        "aefe3f27ecec4dff64502516587945b9370754ebfc3ca4f183d7afb970518782");
  CHECK(Hex(KeyForWire(SomeJobKey(), kWireId)) ==
        "94165ee5b75baa10715c0a2441499f8cce104b8862d80fec2d69e4ffab9e38ad");
  CHECK(Hex(KeyForExchange(SomeJobKey(), kWireId)) ==
        "a6c650ea65da41260b3737b100465a54af3d1560f002a54812f17dfad6fb953b");
}

TEST_CASE("JobKey: differs when anything differs, also where the fields meet") {
  const std::set<DoorKey> keys = {
      JobKey("cluster", "job", "secret", 1000),
      JobKey("cluster", "jobs", "ecret", 1000),
      JobKey("cluster", "jo", "bsecret", 1000),
      JobKey("cluster", "job", "", 1000),
      JobKey("", "job", "secret", 1000),
      JobKey("", "job", "", 1000),
      JobKey("", "", "job", 1000),
      JobKey("secret", "job", "cluster", 1000),
  };
  CHECK(keys.size() == 8);
}

TEST_CASE("JobKey: without a secret each user's differs, with one all are alike") {
  CHECK(Hex(JobKey(std::string(32, 'c'), "train", "", 1000)) ==
        "c5b440c96cca76d2f11c565e39a9e010dde4b3b97b0e9e80fd69fd37444bcecc");
  CHECK(JobKey("cluster", "job", "", 1000) != JobKey("cluster", "job", "", 1001));
  CHECK(JobKey("cluster", "job", "secret", 1000) == JobKey("cluster", "job", "secret", 1001));
}

TEST_CASE("Keys of purposes: differ from each other, and from wire to wire") {
  const DoorKey job = SomeJobKey();
  const std::set<DoorKey> keys = {job,
                                  KeyForControl(job),
                                  KeyForWire(job, 1),
                                  KeyForWire(job, 2),
                                  KeyForWire(job, std::uint64_t{1} << 56),
                                  KeyForExchange(job, 1),
                                  KeyForExchange(job, 2)};
  CHECK(keys.size() == 7);
}

TEST_CASE("Proofs and session key: have the values that the README says") {
  const DoorKey key = KeyForWire(SomeJobKey(), kWireId);
  CHECK(Hex(DiallerProof(key, SomeHello(), SomeChallenge())) ==
        "48fae529163e394aefa91bdd183894924e56a5d734fae717de55288a94dc0675");
  CHECK(Hex(AnswererProof(key, SomeHello(), SomeChallenge(), DoorVerdict::kWelcome)) ==
        "f96e76851896c1096f7af634536b7ccdb08191b417e6354c7147689fa4af9399");
  CHECK(Hex(SessionKey(key, SomeHello(), SomeChallenge())) ==
        "11db298f03411983990b66c825ac5def85b19d805e362c40fee05883b81b3382");
}

TEST_CASE("Subject of a control stream: 28 bytes of SHA-256 of the job id, and the user") {
  const DoorSubject subject = ToSubject(ControlSubject{JobTag("train"), 1000});
  CHECK(Hex(subject) == "116f54c41d0405dbb10e7b04ebc31e262a5b8c85c1233fcf36eaee34e8030000");
  CHECK(ToControlSubject(subject).uid == 1000);
  CHECK(ToControlSubject(subject).job == JobTag("train"));
}

TEST_CASE("Proofs: every bit of Hello and Challenge is under them") {
  const DoorKey key = SomeJobKey();
  std::set<Sha256Digest> proofs = {
      DiallerProof(key, SomeHello(), SomeChallenge()),
      AnswererProof(key, SomeHello(), SomeChallenge(), DoorVerdict::kWelcome)};
  for (std::size_t i = 0; i < kDoorHelloBytes; ++i) {
    DoorHelloBytes hello = SomeHello();
    hello[i] ^= std::byte{0x80};
    CHECK(proofs.insert(DiallerProof(key, hello, SomeChallenge())).second);
    CHECK(proofs.insert(AnswererProof(key, hello, SomeChallenge(), DoorVerdict::kWelcome)).second);
  }
  for (std::size_t i = 0; i < kDoorChallengeBytes; ++i) {
    DoorChallengeBytes challenge = SomeChallenge();
    challenge[i] ^= std::byte{1};
    CHECK(proofs.insert(DiallerProof(key, SomeHello(), challenge)).second);
    CHECK(proofs.insert(AnswererProof(key, SomeHello(), challenge, DoorVerdict::kWelcome)).second);
  }
}

}  // namespace ringd
