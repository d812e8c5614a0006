// What goes over a connection of the fast path, between the ringds that open it and then between the ranks
// that use it (fast_path_exchange.h has the protocol).
//
// All integers are of the machine's byte order, as in the messages of the data path: the nodes of a job are alike.
#ifndef RINGD_PROTO_FAST_PATH_FAST_PATH_MESSAGE_H_
#define RINGD_PROTO_FAST_PATH_FAST_PATH_MESSAGE_H_

#include <cstddef>
#include <cstdint>

namespace ringd {

inline constexpr std::uint32_t kFastPathMessageMagic = 0x31504652;  // "RFP1" in memory
inline constexpr std::uint32_t kFastPathWireVersion = 6;

// First on a connection between a ringd and the root's: kFastPathReady from the one that has all its connections, then, when
// all nodes are ready, kFastPathOpen from the root: from now on the ranks speak. If one does not come the connections are
// closed instead, and the job does without.
struct FastPathSign {
  std::uint32_t magic;
  std::uint32_t version;  // kFastPathWireVersion

  friend constexpr bool operator==(const FastPathSign&, const FastPathSign&) noexcept = default;
};
static_assert(sizeof(FastPathSign) == 8);
inline constexpr FastPathSign kFastPathReady{0x31524652, kFastPathWireVersion};  // "RFR1" in memory
inline constexpr FastPathSign kFastPathOpen{0x314f4652, kFastPathWireVersion};   // "RFO1"

enum class FastPathMessageKind : std::uint16_t {
  // Of two nodes each is the other's parent and child, but gets no kResult.
  kInput =
      1,  // to the parent: what the ranks of a node, and of all below it, have contributed together
  kResult = 2,  // from the parent
  kGiveUp = 3,  // from the parent: this operation has no result here, and never will
  kStop = 4,    // from the root: nor has any other from now on; to the root: it shall say so
};

struct FastPathMessage {
  std::uint32_t magic;  // kFastPathMessageMagic
  FastPathMessageKind kind;
  std::uint16_t reserved;
  std::uint32_t payload_bytes;  // that follow
  std::uint32_t reserved2;
  std::uint64_t signature;  // FastPathKey
  std::uint64_t occurrence;
};
static_assert(sizeof(FastPathMessage) == 32);

}  // namespace ringd

#endif  // RINGD_PROTO_FAST_PATH_FAST_PATH_MESSAGE_H_
