// What an operation that is matched by order is. On a communicator that matches by order the n-th
// operation of each rank is one with the n-th of all others, whatever it is: so it has no name, is
// not registered, and each submission describes it.
#ifndef RINGD_PROTO_SHM_ORDERED_OPERATION_H_
#define RINGD_PROTO_SHM_ORDERED_OPERATION_H_

#include <cstdint>
#include <optional>

#include "proto/operations/operation_traits.h"
#include "proto/types/collective_kind.h"
#include "proto/types/data_type.h"
#include "proto/types/reduce_op.h"

namespace ringd {

// Operations go round so many places, each of which has one under way at a time: operation n takes
// place n % kOrderedPlaces, where it is occurrence n / kOrderedPlaces.
inline constexpr std::uint32_t kOrderedPlaces = 64;

constexpr std::uint32_t OrderedPlaceOf(std::uint64_t number) noexcept {
  return static_cast<std::uint32_t>(number % kOrderedPlaces);
}
constexpr std::uint64_t OrderedNumberOf(std::uint32_t place, std::uint64_t occurrence) noexcept {
  return occurrence * kOrderedPlaces + place;
}

// By what each rank's elements are multiplied before they are combined, and the result afterwards.
struct OrderedScales {
  double prescale = 1.0;
  double postscale = 1.0;

  friend bool operator==(const OrderedScales&, const OrderedScales&) = default;
};

// All of it but the element count and the scales, in one word.
struct OrderedDescription {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  DataType data_type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  // Of a job segment's slot: which member is the root, and whether the data is in the slot.
  std::uint8_t root_member = 0;
  bool is_inline = false;
  bool is_scaled = false;  // there are scales, beside the word

  // Fields that mean nothing for the kind count as their defaults, so that equal meanings give
  // equal words.
  constexpr std::uint32_t ToWord() const noexcept {
    const OperationTraits& traits = TraitsOf(kind);
    const DataType typed = traits.moves_data ? data_type : DataType::kFloat32;
    const ReduceOp combining = traits.combines ? op : ReduceOp::kSum;
    const bool scaled = traits.combines && is_scaled;
    return static_cast<std::uint32_t>(kind) | std::uint32_t{is_inline} << 7 |
           static_cast<std::uint32_t>(typed) << 8 | static_cast<std::uint32_t>(combining) << 16 |
           std::uint32_t{scaled} << 23 |
           std::uint32_t{traits.rooted ? root_member : std::uint8_t{0}} << 24;
  }
  // Nothing if it is the word of none that trainers may ask for.
  static constexpr std::optional<OrderedDescription> FromWord(std::uint32_t word) noexcept {
    const std::uint32_t kind = word & 0x7f;
    const std::uint32_t data_type = word >> 8 & 0xff;
    const std::uint32_t op = word >> 16 & 0x7f;
    if (!IsOffered(kind) || !IsValid(static_cast<DataType>(data_type)) ||
        !IsValid(static_cast<ReduceOp>(op))) {
      return std::nullopt;
    }
    return OrderedDescription{static_cast<CollectiveKind>(kind),
                              static_cast<DataType>(data_type),
                              static_cast<ReduceOp>(op),
                              static_cast<std::uint8_t>(word >> 24),
                              (word & 0x80) != 0,
                              (word & 0x800000) != 0};
  }
};

}  // namespace ringd

#endif  // RINGD_PROTO_SHM_ORDERED_OPERATION_H_
