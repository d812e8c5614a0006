// What an operation does with its buffers.
#ifndef RINGD_PROTO_TYPES_COLLECTIVE_KIND_H_
#define RINGD_PROTO_TYPES_COLLECTIVE_KIND_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace ringd {

// The numbers are part of the protocol: append, never renumber.
enum class CollectiveKind : std::uint8_t {
  kAllReduce = 0,
  kBroadcast = 1,
  kBarrier = 2,
  kReduceScatter = 3,
  kAllGather = 4,
  // What ringds ask of their backends for themselves: not valid where a trainer or a peer names a
  // kind.
  kLinkProbe = 255,
};

inline constexpr int kCollectiveKindCount = 5;

constexpr bool IsValid(CollectiveKind kind) noexcept {
  return static_cast<int>(kind) < kCollectiveKindCount;
}

// "allreduce", "broadcast", "barrier", ...; "invalid" for anything else.
constexpr absl::string_view Name(CollectiveKind kind) noexcept {
  constexpr absl::string_view kNames[kCollectiveKindCount] = {"allreduce", "broadcast", "barrier",
                                                              "reducescatter", "allgather"};
  return IsValid(kind) ? kNames[static_cast<int>(kind)] : absl::string_view("invalid");
}

}  // namespace ringd

#endif  // RINGD_PROTO_TYPES_COLLECTIVE_KIND_H_
