// What an operation of each kind does: rooms ask for a trait, never for a kind by its name.
#ifndef RINGD_PROTO_OPERATIONS_OPERATION_TRAITS_H_
#define RINGD_PROTO_OPERATIONS_OPERATION_TRAITS_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "proto/types/collective_kind.h"

namespace ringd {

// How much of an operation's data a rank's source or destination is.
enum class Extent : std::uint8_t {
  kAll,
  kOwnPart,  // each rank has a part of its own; the parts' sizes may differ
};

struct OperationTraits {
  CollectiveKind kind;
  // It has bytes, a data type and a shape. What has none is over when all ranks have come.
  bool moves_data;
  // All ranks' inputs are combined by a ReduceOp, with scales; else bytes are copied as they are.
  bool combines;
  // One rank, the root, alone has an input, and all others get it.
  bool rooted;
  // It completes nowhere before every node has started it. Then it can be learned, and taken back:
  // see "Departures" in daemon/schedule/README.md. (If it has bytes, and no part is empty; without
  // any nothing is sent.)
  bool completes_together;
  // Trainers may ask for it.
  bool offered;
  // Of a rank that has an input, and of one that gets an output.
  Extent input = Extent::kAll;
  Extent output = Extent::kAll;

  // Whether a rank's input is read, and its output written.
  constexpr bool Reads(bool is_root) const noexcept { return moves_data && (!rooted || is_root); }
  constexpr bool Writes(bool is_root) const noexcept { return moves_data && !(rooted && is_root); }

  // The data is divided into the ranks' parts.
  constexpr bool HasParts() const noexcept {
    return input == Extent::kOwnPart || output == Extent::kOwnPart;
  }
  // Every rank gets what all ranks' inputs are combined to.
  constexpr bool CombinesForAll() const noexcept { return combines && output == Extent::kAll; }
};

// A row for each kind, by its number.
inline constexpr std::array<OperationTraits, kCollectiveKindCount> kOperationTraits = {{
    {.kind = CollectiveKind::kAllReduce,
     .moves_data = true,
     .combines = true,
     .rooted = false,
     .completes_together = true,
     .offered = true},
    {.kind = CollectiveKind::kBroadcast,
     .moves_data = true,
     .combines = false,
     .rooted = true,
     .completes_together = false,  // its root may be done before the others begin
     .offered = true},
    {.kind = CollectiveKind::kBarrier,
     .moves_data = false,
     .combines = false,
     .rooted = false,
     .completes_together = true,
     .offered = true},
    {.kind = CollectiveKind::kReduceScatter,
     .moves_data = true,
     .combines = true,
     .rooted = false,
     .completes_together = true,
     .offered = false,
     .output = Extent::kOwnPart},
    {.kind = CollectiveKind::kAllGather,
     .moves_data = true,
     .combines = false,
     .rooted = false,
     .completes_together = true,
     .offered = false,
     .input = Extent::kOwnPart},
}};

// Requirement: IsValid(kind).
constexpr const OperationTraits& TraitsOf(CollectiveKind kind) noexcept {
  return kOperationTraits[static_cast<std::size_t>(kind)];
}

// Whether trainers may ask for the kind of this number.
constexpr bool IsOffered(std::uint32_t number) noexcept {
  return number < kOperationTraits.size() && kOperationTraits[number].offered;
}

}  // namespace ringd

#endif  // RINGD_PROTO_OPERATIONS_OPERATION_TRAITS_H_
