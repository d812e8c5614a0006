// How the ranks' elements are combined.
#ifndef RINGD_PROTO_TYPES_REDUCE_OP_H_
#define RINGD_PROTO_TYPES_REDUCE_OP_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace ringd {

// The numbers are part of the protocol: append, never renumber.
enum class ReduceOp : std::uint8_t {
  kSum = 0,
  kAverage = 1,  // a sum, divided by the number of ranks on the way out
  kMin = 2,
  kMax = 3,
  kProduct = 4,
};

inline constexpr int kReduceOpCount = 5;

constexpr bool IsValid(ReduceOp op) noexcept { return static_cast<int>(op) < kReduceOpCount; }

// "sum", "average", "min", "max", "product"; "invalid" for anything else.
constexpr absl::string_view Name(ReduceOp op) noexcept {
  constexpr absl::string_view kNames[kReduceOpCount] = {"sum", "average", "min", "max", "product"};
  return IsValid(op) ? kNames[static_cast<int>(op)] : absl::string_view("invalid");
}

}  // namespace ringd

#endif  // RINGD_PROTO_TYPES_REDUCE_OP_H_
