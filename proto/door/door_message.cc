#include "proto/door/door_message.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace ringd {
namespace {

// Writes fields one behind the other.
class FieldWriter {
 public:
  explicit FieldWriter(std::span<std::byte> bytes) noexcept : bytes_(bytes) {}

  template <typename Integer>
  FieldWriter& Number(Integer value) noexcept {
    static_assert(std::is_unsigned_v<Integer>);
    for (std::size_t i = 0; i < sizeof(value); ++i) {
      bytes_[i] = static_cast<std::byte>(value >> (8 * i) & 0xff);
    }
    bytes_ = bytes_.subspan(sizeof(value));
    return *this;
  }
  template <typename Array>
  FieldWriter& Bytes(const Array& array) noexcept {
    std::memcpy(bytes_.data(), array.data(), array.size());
    bytes_ = bytes_.subspan(array.size());
    return *this;
  }

 private:
  std::span<std::byte> bytes_;
};

class FieldReader {
 public:
  explicit FieldReader(std::span<const std::byte> bytes) noexcept : bytes_(bytes) {}

  template <typename Integer>
  Integer Number() noexcept {
    static_assert(std::is_unsigned_v<Integer>);
    Integer value = 0;
    for (std::size_t i = 0; i < sizeof(value); ++i) {
      value = static_cast<Integer>(value | std::to_integer<Integer>(bytes_[i]) << (8 * i));
    }
    bytes_ = bytes_.subspan(sizeof(value));
    return value;
  }
  template <typename Array>
  Array Bytes() noexcept {
    Array array;
    std::memcpy(array.data(), bytes_.data(), array.size());
    bytes_ = bytes_.subspan(array.size());
    return array;
  }
  FieldReader& Skip(std::size_t count) noexcept {
    bytes_ = bytes_.subspan(count);
    return *this;
  }
  std::span<const std::byte> rest() const noexcept { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace

DoorHelloBytes Encode(const DoorHello& hello) noexcept {
  DoorHelloBytes bytes{};
  FieldWriter(bytes)
      .Bytes(kDoorMagic)
      .Number(hello.version)
      .Number(static_cast<std::uint16_t>(hello.purpose))
      .Number(hello.flags)
      .Bytes(hello.subject)
      .Bytes(hello.nonce)
      .Bytes(hello.node_name);
  return bytes;
}

DoorChallengeBytes Encode(const DoorChallenge& challenge) noexcept {
  DoorChallengeBytes bytes{};
  FieldWriter(bytes)
      .Bytes(kDoorMagic)
      .Number(challenge.version)
      .Number(std::uint16_t{0})
      .Number(challenge.flags)
      .Bytes(challenge.nonce)
      .Bytes(challenge.node_name);
  return bytes;
}

DoorHello DecodeHello(std::span<const std::byte, kDoorHelloBytes> bytes) noexcept {
  FieldReader reader(bytes);
  reader.Skip(kDoorMagic.size());
  DoorHello hello;
  hello.version = reader.Number<std::uint16_t>();
  hello.purpose = static_cast<DoorPurpose>(reader.Number<std::uint16_t>());
  hello.flags = reader.Number<std::uint32_t>();
  hello.subject = reader.Bytes<DoorSubject>();
  hello.nonce = reader.Bytes<DoorNonce>();
  hello.node_name = reader.Bytes<DoorName>();
  return hello;
}

DoorChallenge DecodeChallenge(std::span<const std::byte, kDoorChallengeBytes> bytes) noexcept {
  FieldReader reader(bytes);
  reader.Skip(kDoorMagic.size());
  DoorChallenge challenge;
  challenge.version = reader.Number<std::uint16_t>();
  reader.Skip(sizeof(std::uint16_t));
  challenge.flags = reader.Number<std::uint32_t>();
  challenge.nonce = reader.Bytes<DoorNonce>();
  challenge.node_name = reader.Bytes<DoorName>();
  return challenge;
}

std::uint16_t VersionOf(std::span<const std::byte, kDoorPrefixBytes> bytes) noexcept {
  return FieldReader(bytes).Skip(kDoorMagic.size()).Number<std::uint16_t>();
}

bool BeginsWithDoorMagic(std::span<const std::byte> bytes) noexcept {
  return std::memcmp(bytes.data(), kDoorMagic.data(), std::min(bytes.size(), kDoorMagic.size())) ==
         0;
}

void StoreVerdict(DoorVerdict verdict, std::span<std::byte, 4> bytes) noexcept {
  FieldWriter(bytes).Number(static_cast<std::uint32_t>(verdict));
}

DoorVerdict LoadVerdict(std::span<const std::byte, 4> bytes) noexcept {
  return static_cast<DoorVerdict>(FieldReader(bytes).Number<std::uint32_t>());
}

DoorName ToDoorName(absl::string_view name) noexcept {
  DoorName cut{};
  std::copy_n(name.data(), std::min(name.size(), cut.size()), cut.data());
  return cut;
}

std::string ReadableName(const DoorName& name) {
  std::string text(name.begin(), std::find(name.begin(), name.end(), '\0'));
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

std::array<std::byte, 28> JobTag(absl::string_view job_id) noexcept {
  const Sha256Digest digest = Sha256(job_id);
  std::array<std::byte, 28> tag;
  std::copy_n(digest.begin(), tag.size(), tag.begin());
  return tag;
}

DoorSubject ToSubject(const ControlSubject& subject) noexcept {
  DoorSubject bytes{};
  FieldWriter(bytes).Bytes(subject.job).Number(subject.uid);
  return bytes;
}

ControlSubject ToControlSubject(const DoorSubject& subject) noexcept {
  FieldReader reader(subject);
  ControlSubject control;
  control.job = reader.Bytes<decltype(control.job)>();
  control.uid = reader.Number<std::uint32_t>();
  return control;
}

DoorSubject ToSubject(const WireSubject& subject) noexcept {
  DoorSubject bytes{};
  FieldWriter(bytes)
      .Number(subject.wire_id)
      .Number(subject.from)
      .Number(subject.to)
      .Number(subject.stream);
  return bytes;
}

std::optional<WireSubject> ToWireSubject(const DoorSubject& subject) noexcept {
  FieldReader reader(subject);
  WireSubject wire;
  wire.wire_id = reader.Number<std::uint64_t>();
  wire.from = reader.Number<std::uint32_t>();
  wire.to = reader.Number<std::uint32_t>();
  wire.stream = reader.Number<std::uint32_t>();
  const auto is_zero = [](std::byte byte) { return byte == std::byte{0}; };
  if (!std::all_of(reader.rest().begin(), reader.rest().end(), is_zero)) return std::nullopt;
  return wire;
}

}  // namespace ringd
