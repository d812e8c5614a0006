#include "tests/gpu/emulator/nccl/arithmetic.h"

#include <cstdint>
#include <cstring>

#include "proto/reduce/float16.h"
#include "proto/reduce/float8.h"
#include "proto/reduce/reduce.h"

namespace ringd::emulator {
namespace {

template <typename T>
T Read(const void* scalar) {
  T value{};
  std::memcpy(&value, scalar, sizeof value);
  return value;
}

template <typename T>
void DivideAll(void* values, std::size_t count, std::size_t divisor) {
  auto* const integers = static_cast<T*>(values);
  for (std::size_t i = 0; i < count; ++i) {
    integers[i] = static_cast<T>(integers[i] / static_cast<T>(divisor));
  }
}

void DivideIntegers(DataType type, void* values, std::size_t count, std::size_t divisor) {
  switch (type) {
    case DataType::kInt8:
      return DivideAll<std::int8_t>(values, count, divisor);
    case DataType::kUint8:
      return DivideAll<std::uint8_t>(values, count, divisor);
    case DataType::kInt32:
      return DivideAll<std::int32_t>(values, count, divisor);
    case DataType::kUint32:
      return DivideAll<std::uint32_t>(values, count, divisor);
    case DataType::kInt64:
      return DivideAll<std::int64_t>(values, count, divisor);
    default:
      return DivideAll<std::uint64_t>(values, count, divisor);
  }
}

// What a number becomes in the elements' type.
double Rounded(DataType type, double value) {
  const auto single = static_cast<float>(value);
  switch (type) {
    case DataType::kFloat16:
      return Float16ToFloat(FloatToFloat16(single));
    case DataType::kBfloat16:
      return Bfloat16ToFloat(FloatToBfloat16(single));
    case DataType::kFloat8E4M3:
      return Float8E4M3ToFloat(FloatToFloat8<Float8E4M3>(single));
    case DataType::kFloat8E5M2:
      return Float8E5M2ToFloat(FloatToFloat8<Float8E5M2>(single));
    case DataType::kFloat32:
      return single;
    default:
      return value;
  }
}

ReduceOp OursOf(NcclRedOp op) {
  switch (static_cast<int>(op)) {
    case kNcclProduct:
      return ReduceOp::kProduct;
    case kNcclMax:
      return ReduceOp::kMax;
    case kNcclMin:
      return ReduceOp::kMin;
    default:
      return ReduceOp::kSum;
  }
}

}  // namespace

void CombineAll(DataType type, NcclRedOp op, std::span<const void* const> sources,
                void* destination, std::size_t count) {
  const bool is_average = op == kNcclAverage;
  const bool has_shares = is_average && IsFloatingPoint(type);
  const double share = has_shares ? Rounded(type, 1.0 / static_cast<double>(sources.size())) : 1.0;
  void* const destinations[] = {destination};
  CombineContributions(type, OursOf(op), share, nullptr, sources, destinations, count, Scaling{},
                       Streaming::kAuto);
  if (is_average && !IsFloatingPoint(type)) {
    DivideIntegers(type, destination, count, sources.size());
  }
}

void Multiply(DataType type, double factor, const void* source, void* destination,
              std::size_t count) {
  CopyScaled(type, destination, source, count, Scaling{factor, 1});
}

double ReadScalar(DataType type, const void* scalar) {
  switch (type) {
    case DataType::kInt8:
      return Read<std::int8_t>(scalar);
    case DataType::kUint8:
      return Read<std::uint8_t>(scalar);
    case DataType::kInt32:
      return Read<std::int32_t>(scalar);
    case DataType::kUint32:
      return Read<std::uint32_t>(scalar);
    case DataType::kInt64:
      return static_cast<double>(Read<std::int64_t>(scalar));
    case DataType::kUint64:
      return static_cast<double>(Read<std::uint64_t>(scalar));
    case DataType::kFloat16:
      return Float16ToFloat(Read<std::uint16_t>(scalar));
    case DataType::kBfloat16:
      return Bfloat16ToFloat(Read<std::uint16_t>(scalar));
    case DataType::kFloat32:
      return Read<float>(scalar);
    case DataType::kFloat8E4M3:
      return Float8E4M3ToFloat(Read<std::uint8_t>(scalar));
    case DataType::kFloat8E5M2:
      return Float8E5M2ToFloat(Read<std::uint8_t>(scalar));
    default:
      return Read<double>(scalar);
  }
}

}  // namespace ringd::emulator
