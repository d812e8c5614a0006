#include "proto/types/data_type.h"

namespace ringd {
namespace {

constexpr absl::string_view kNames[kDataTypeCount] = {
    "uint8",   "int8",     "uint16",  "int16",   "uint32", "int32",         "uint64",     "int64",
    "float16", "bfloat16", "float32", "float64", "bool",   "float8_e4m3fn", "float8_e5m2"};

}  // namespace

absl::string_view Name(DataType type) noexcept {
  return IsValid(type) ? kNames[static_cast<int>(type)] : "invalid";
}

std::optional<DataType> DataTypeFromName(absl::string_view name) noexcept {
  for (int i = 0; i < kDataTypeCount; ++i) {
    if (kNames[i] == name) return static_cast<DataType>(i);
  }
  return std::nullopt;
}

}  // namespace ringd
