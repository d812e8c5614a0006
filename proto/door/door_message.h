// The four messages of the door's handshake, byte for byte; README.md draws them.
//
// Integers are little-endian. What is decoded here has the right size and nothing else has been
// checked.
#ifndef RINGD_PROTO_DOOR_DOOR_MESSAGE_H_
#define RINGD_PROTO_DOOR_DOOR_MESSAGE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "absl/strings/string_view.h"
#include "proto/door/hmac.h"

namespace ringd {

// Hello and Challenge of every version begin with the magic and the version.
inline constexpr std::array<char, 8> kDoorMagic = {'R', 'I', 'N', 'G', 'D', 'O', 'O', 'R'};
inline constexpr std::uint16_t kDoorVersion = 3;
inline constexpr std::size_t kDoorPrefixBytes = 10;

inline constexpr std::size_t kDoorNameBytes = 64;
inline constexpr std::size_t kDoorHelloBytes = 144;
inline constexpr std::size_t kDoorChallengeBytes = 112;
inline constexpr std::size_t kDoorProofBytes = kSha256Bytes;
inline constexpr std::size_t kDoorVerdictBytes = 36;

// What the connection is for. A number that is none of these is nobody's here.
enum class DoorPurpose : std::uint16_t { kControl = 1, kWire = 2, kExchange = 3 };

enum class DoorVerdict : std::uint32_t {
  kWelcome = 0,
  kUnknownSubject = 1,  // nobody here waits for it yet: try later
  kWrongKey = 2,
  kFull = 3,  // try later
  kVersion = 4,
  kNoOtherNodes = 5,  // control only: all ranks of the job are on the answerer's node
  kDraining = 6,      // control only: the answerer takes no new jobs
  kOneself = 7,       // the dialler and the answerer are one door
};

// For people who look for a difference between two nodes; nothing is decided by them.
inline constexpr std::uint32_t kDoorHasClusterKey = 1;
inline constexpr std::uint32_t kDoorHasJobSecret = 2;  // Hello only

using DoorSubject = std::array<std::byte, 32>;
using DoorNonce = std::array<std::byte, 32>;
using DoorName = std::array<char, kDoorNameBytes>;  // ends at the first NUL, if there is one

struct DoorHello {
  std::uint16_t version = kDoorVersion;
  DoorPurpose purpose{};
  std::uint32_t flags = 0;
  DoorSubject subject{};
  DoorNonce nonce{};
  DoorName node_name{};  // the dialler's, by its word
};

struct DoorChallenge {
  std::uint16_t version = kDoorVersion;
  std::uint32_t flags = 0;
  DoorNonce nonce{};
  DoorName node_name{};  // the answerer's, by its word
};

using DoorHelloBytes = std::array<std::byte, kDoorHelloBytes>;
using DoorChallengeBytes = std::array<std::byte, kDoorChallengeBytes>;

DoorHelloBytes Encode(const DoorHello& hello) noexcept;
DoorChallengeBytes Encode(const DoorChallenge& challenge) noexcept;
DoorHello DecodeHello(std::span<const std::byte, kDoorHelloBytes> bytes) noexcept;
DoorChallenge DecodeChallenge(std::span<const std::byte, kDoorChallengeBytes> bytes) noexcept;

// The version that a Hello or Challenge begins with.
std::uint16_t VersionOf(std::span<const std::byte, kDoorPrefixBytes> bytes) noexcept;
// False if these first bytes of a Hello or Challenge, of which more may come, are none of a ringd.
bool BeginsWithDoorMagic(std::span<const std::byte> bytes) noexcept;

void StoreVerdict(DoorVerdict verdict, std::span<std::byte, 4> bytes) noexcept;
DoorVerdict LoadVerdict(std::span<const std::byte, 4> bytes) noexcept;

// Cut to 64 bytes.
DoorName ToDoorName(absl::string_view name) noexcept;
// For messages: one line of printable ASCII, with '?' in place of other bytes.
std::string ReadableName(const DoorName& name);

// The subject of a control stream: which job, and whose. Jobs of several users may have one id, and
// not every site gives a user the same number on all nodes: the number helps to tell why a key does
// not fit, and admits nobody.
struct ControlSubject {
  std::array<std::byte, 28> job{};  // see JobTag
  std::uint32_t uid = 0;            // of the ranks on the dialler's node, by its word
};
DoorSubject ToSubject(const ControlSubject& subject) noexcept;
ControlSubject ToControlSubject(const DoorSubject& subject) noexcept;
// The first 28 bytes of SHA-256 of the job id.
std::array<std::byte, 28> JobTag(absl::string_view job_id) noexcept;

// The subject of a wire or an exchange: one connection, from the dialler's node to the answerer's.
struct WireSubject {
  std::uint64_t wire_id = 0;
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  std::uint32_t stream = 0;
};
DoorSubject ToSubject(const WireSubject& subject) noexcept;
// Nothing if it is none: what lies behind the fields is not zero.
std::optional<WireSubject> ToWireSubject(const DoorSubject& subject) noexcept;

}  // namespace ringd

#endif  // RINGD_PROTO_DOOR_DOOR_MESSAGE_H_
