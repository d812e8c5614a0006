#include "proto/door/door_message.h"

#include <catch2/catch.hpp>
#include <numeric>
#include <string>

#include "absl/strings/escaping.h"

namespace ringd {
namespace {

std::string Hex(std::span<const std::byte> bytes) { return absl::BytesToHexString(AsText(bytes)); }

DoorNonce Counting(int first) {
  DoorNonce nonce;
  for (std::byte& byte : nonce) byte = static_cast<std::byte>(first++);
  return nonce;
}

DoorHello SomeHello() {
  DoorHello hello;
  hello.purpose = DoorPurpose::kWire;
  hello.flags = kDoorHasClusterKey | kDoorHasJobSecret;
  hello.subject = ToSubject({.wire_id = 0x0102030405060708, .from = 1, .to = 0, .stream = 2});
  hello.nonce = Counting(0);
  hello.node_name = ToDoorName("node-a");
  return hello;
}

}  // namespace

TEST_CASE("Encode: a Hello has the bytes that the README draws") {
  CHECK(Hex(Encode(SomeHello())) ==
        std::string("52494e47444f4f52"  // RINGDOOR
                    "0300"
                    "0200"
                    "03000000"
                    "0807060504030201"
                    "01000000"
                    "00000000"
                    "02000000"
                    "000000000000000000000000"
                    "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
                    "6e6f64652d61") +
            std::string(116, '0'));
}

TEST_CASE("Encode: a Challenge has the bytes that the README draws") {
  DoorChallenge challenge;
  challenge.flags = kDoorHasClusterKey;
  challenge.nonce = Counting(32);
  challenge.node_name = ToDoorName("node-b");
  CHECK(Hex(Encode(challenge)) ==
        std::string("52494e47444f4f52"
                    "0300"
                    "0000"
                    "01000000"
                    "202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f"
                    "6e6f64652d62") +
            std::string(116, '0'));
}

TEST_CASE("DecodeHello, DecodeChallenge: give back what was encoded") {
  const DoorHello hello = DecodeHello(Encode(SomeHello()));
  CHECK(hello.version == kDoorVersion);
  CHECK(hello.purpose == DoorPurpose::kWire);
  CHECK(hello.flags == 3);
  CHECK(hello.subject == SomeHello().subject);
  CHECK(hello.nonce == SomeHello().nonce);
  CHECK(ReadableName(hello.node_name) == "node-a");

  DoorChallenge challenge;
  challenge.version = 7;
  challenge.flags = 0x80000001;
  challenge.nonce = Counting(9);
  challenge.node_name = ToDoorName(std::string(100, 'n'));
  const DoorChallenge decoded = DecodeChallenge(Encode(challenge));
  CHECK(decoded.version == 7);
  CHECK(decoded.flags == 0x80000001);
  CHECK(decoded.nonce == challenge.nonce);
  CHECK(ReadableName(decoded.node_name) == std::string(64, 'n'));
}

TEST_CASE("ReadableName: another node's name is one line of printable ASCII") {
  CHECK(ReadableName(ToDoorName("a\nb\x1b[2Jc\xff\x7f")) == "a?b?[2Jc??");
  CHECK(ReadableName(ToDoorName(absl::string_view("a\0b", 3))) == "a");
  CHECK(ReadableName(DoorName{}).empty());
}

TEST_CASE("ToWireSubject: gives the fields, or nothing if there is more than fields") {
  const WireSubject subject{0xfedcba9876543210, 0xffffffff, 7, 16};
  DoorSubject bytes = ToSubject(subject);
  const auto back = ToWireSubject(bytes);
  REQUIRE(back.has_value());
  CHECK(back->wire_id == subject.wire_id);
  CHECK(back->from == subject.from);
  CHECK(back->to == subject.to);
  CHECK(back->stream == subject.stream);
  for (std::size_t i = 20; i < bytes.size(); ++i) {
    bytes = ToSubject(subject);
    bytes[i] = std::byte{1};
    CHECK_FALSE(ToWireSubject(bytes).has_value());
  }
}

TEST_CASE("BeginsWithDoorMagic: holds for every beginning of the magic and nothing else") {
  const DoorHelloBytes bytes = Encode(SomeHello());
  for (std::size_t count = 0; count <= bytes.size(); ++count) {
    CHECK(BeginsWithDoorMagic(std::span(bytes).first(count)));
  }
  for (std::size_t i = 0; i < kDoorMagic.size(); ++i) {
    DoorHelloBytes other = bytes;
    other[i] ^= std::byte{1};
    CHECK_FALSE(BeginsWithDoorMagic(std::span(other).first(i + 1)));
  }
}

}  // namespace ringd
