#include "proto/door/door_key.h"

#include <catch2/catch.hpp>
#include <set>
#include <string>

#include "absl/strings/escaping.h"

// The expected values were computed by another program (Python's hmac) from the words of the README.

namespace ringd {
namespace {

constexpr std::uint64_t kWireId = 0x0102030405060708;

std::string Hex(const Sha256Digest& digest) { return absl::BytesToHexString(AsText(digest)); }

DoorKey SomeJobKey() { return JobKey(std::string(32, 'c'), "train", "secret"); }

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
  CHECK(Hex(SomeJobKey()) == "12f09f194c2e69dd20803390c00666076be7eb6e58f39d52a93c9350949a4669");
  CHECK(Hex(KeyForControl(SomeJobKey())) ==
        "4c0f7c39537b47bbd37ddd046a53a86518b1b63c5e1744bdfa2b82d6247fe99b");
  CHECK(Hex(KeyForWire(SomeJobKey(), kWireId)) ==
        "f5a6aaf38dce94218065291de370c6c8ca99a9a3beb0ff80493b5754d2f745ef");
  CHECK(Hex(KeyForExchange(SomeJobKey(), kWireId)) ==
        "57e8fddbbd810d1b1ecc86f229c95a0b5edf93ba789c8caeb6a64794d4fe557a");
}

TEST_CASE("JobKey: differs when anything differs, also where the fields meet") {
  const std::set<DoorKey> keys = {
      JobKey("cluster", "job", "secret"),
      JobKey("cluster", "jobs", "ecret"),
      JobKey("cluster", "jo", "bsecret"),
      JobKey("cluster", "job", ""),
      JobKey("", "job", "secret"),
      JobKey("", "job", ""),
      JobKey("", "", "job"),
      JobKey("secret", "job", "cluster"),
  };
  CHECK(keys.size() == 8);
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
        "2dfdcdb1713efc79947b1be1aca31759895705fa50acccb9ef4612ebe69a382d");
  CHECK(Hex(AnswererProof(key, SomeHello(), SomeChallenge(), DoorVerdict::kWelcome)) ==
        "fa884c0202241291d7440b1c345c52ae54a1a66af70aa2b58e29ce6d7099dab4");
  CHECK(Hex(SessionKey(key, SomeHello(), SomeChallenge())) ==
        "2abf8cfbbbeb179c55f3e1927413a4672ccd84fea59a242b1b19cd7d28cea547");
}

TEST_CASE("Subject of a control stream: SHA-256 of the job id") {
  CHECK(Hex(ControlSubject("train")) ==
        "116f54c41d0405dbb10e7b04ebc31e262a5b8c85c1233fcf36eaee344d91ae58");
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
