// What an operation of each kind does: rooms ask for a trait, never for a kind by its name.
#ifndef RINGD_PROTO_OPERATIONS_OPERATION_TRAITS_H_
#define RINGD_PROTO_OPERATIONS_OPERATION_TRAITS_H_

#include <array>
#include <cstddef>

#include "proto/types/collective_kind.h"

namespace ringd {

struct OperationTraits {
  CollectiveKind kind;
  // It has bytes, a data type and a shape. What has none is over when all ranks have come.
  bool moves_data;
  // All ranks' inputs are combined by a ReduceOp, with scales; else bytes are copied as they are.
  bool combines;
  // One rank, the root, alone has an input, and all others get it.
  bool rooted;
  // It completes nowhere before every node has started it. Then it can be learned, and taken back:
  // see "Departures" in daemon/schedule/README.md. (If it has bytes; without any nothing is sent.)
  bool completes_together;

  // Whether a rank's input is read, and its output written.
  constexpr bool Reads(bool is_root) const noexcept { return moves_data && (!rooted || is_root); }
  constexpr bool Writes(bool is_root) const noexcept { return moves_data && !(rooted && is_root); }
};

// A row for each kind that trainers may ask for, by its number.
inline constexpr std::array<OperationTraits, kCollectiveKindCount> kOperationTraits = {{
    {.kind = CollectiveKind::kAllReduce,
     .moves_data = true,
     .combines = true,
     .rooted = false,
     .completes_together = true},
    {.kind = CollectiveKind::kBroadcast,
     .moves_data = true,
     .combines = false,
     .rooted = true,
     .completes_together = false},  // its root may be done before the others begin
    {.kind = CollectiveKind::kBarrier,
     .moves_data = false,
     .combines = false,
     .rooted = false,
     .completes_together = true},
}};

// Requirement: IsValid(kind).
constexpr const OperationTraits& TraitsOf(CollectiveKind kind) noexcept {
  return kOperationTraits[static_cast<std::size_t>(kind)];
}

}  // namespace ringd

#endif  // RINGD_PROTO_OPERATIONS_OPERATION_TRAITS_H_
