// What goes over a connection of the rank exchange, between the ringds that open it and then
// between the ranks that use it (rank_exchange.h has the protocol).
//
// All integers are of the machine's byte order, as in the messages of the data path: the nodes of a
// job are alike.
#ifndef RINGD_PROTO_RANK_EXCHANGE_RANK_EXCHANGE_MESSAGE_H_
#define RINGD_PROTO_RANK_EXCHANGE_RANK_EXCHANGE_MESSAGE_H_

#include <cstddef>
#include <cstdint>

namespace ringd {

inline constexpr std::uint32_t kRankExchangeMessageMagic = 0x31504652;  // "RFP1" in memory
inline constexpr std::uint32_t kRankExchangeWireVersion = 7;

// First on a connection between a ringd and the hub's: kRankExchangeReady from the one that has
// all its connections, then, when all nodes are ready, kRankExchangeOpen from the hub: from now on
// the ranks speak. If one does not come the connections are closed instead, and the job does
// without.
struct RankExchangeSign {
  std::uint32_t magic;
  std::uint32_t version;  // kRankExchangeWireVersion

  friend constexpr bool operator==(const RankExchangeSign&,
                                   const RankExchangeSign&) noexcept = default;
};
static_assert(sizeof(RankExchangeSign) == 8);
inline constexpr RankExchangeSign kRankExchangeReady{0x31524652,
                                                     kRankExchangeWireVersion};  // "RFR1" in memory
inline constexpr RankExchangeSign kRankExchangeOpen{0x314f4652,
                                                    kRankExchangeWireVersion};  // "RFO1"

enum class RankExchangeMessageKind : std::uint16_t {
  // Of two nodes each is the other's parent and child, but gets no kResult.
  kInput =
      1,  // to the parent: what the ranks of a node, and of all below it, have contributed together
  kResult = 2,  // from the parent
  kGiveUp = 3,  // from the parent: this operation has no result here, and never will
  kStop = 4,    // from the hub: nor has any other from now on; to the hub: it shall say so
};

struct RankExchangeMessage {
  std::uint32_t magic;  // kRankExchangeMessageMagic
  RankExchangeMessageKind kind;
  std::uint16_t reserved;
  std::uint32_t payload_bytes;  // that follow
  std::uint32_t reserved2;
  std::uint64_t signature;  // RankExchangeKey
  std::uint64_t occurrence;
};
static_assert(sizeof(RankExchangeMessage) == 32);

}  // namespace ringd

#endif  // RINGD_PROTO_RANK_EXCHANGE_RANK_EXCHANGE_MESSAGE_H_
