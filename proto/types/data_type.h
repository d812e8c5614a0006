// Element types of tensors, as both sides of the shared memory and all nodes number them.
#ifndef RINGD_PROTO_TYPES_DATA_TYPE_H_
#define RINGD_PROTO_TYPES_DATA_TYPE_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace ringd {

// The numbers are part of the protocol: append, never renumber.
enum class DataType : std::uint8_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kUint64 = 6,
  kInt64 = 7,
  kFloat16 = 8,
  kBfloat16 = 9,
  kFloat32 = 10,
  kFloat64 = 11,
  kBool = 12,
  kFloat8E4M3 = 13,  // the "fn" variant: finite, no infinities
  kFloat8E5M2 = 14,
};

inline constexpr int kDataTypeCount = 15;

constexpr bool IsValid(DataType type) noexcept { return static_cast<int>(type) < kDataTypeCount; }

// Bytes of one element; 0 for a value that is no DataType.
constexpr std::size_t SizeOf(DataType type) noexcept {
  constexpr std::uint8_t kSizes[kDataTypeCount] = {1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 1, 1, 1};
  return IsValid(type) ? kSizes[static_cast<int>(type)] : 0;
}

constexpr bool IsFloat8(DataType type) noexcept {
  return type == DataType::kFloat8E4M3 || type == DataType::kFloat8E5M2;
}

constexpr bool IsFloatingPoint(DataType type) noexcept {
  return (type >= DataType::kFloat16 && type <= DataType::kFloat64) || IsFloat8(type);
}

// The name users know: "float32", "bfloat16", "float8_e4m3fn"; "invalid" for anything else.
absl::string_view Name(DataType type) noexcept;

// The inverse of Name.
std::optional<DataType> DataTypeFromName(absl::string_view name) noexcept;

}  // namespace ringd

#endif  // RINGD_PROTO_TYPES_DATA_TYPE_H_
