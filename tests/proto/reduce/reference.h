// What the kernels must compute, one element at a time and as plainly as it can be written.
#ifndef RINGD_TESTS_PROTO_REDUCE_REFERENCE_H_
#define RINGD_TESTS_PROTO_REDUCE_REFERENCE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>

#include "proto/reduce/float16.h"
#include "proto/reduce/float8.h"
#include "proto/reduce/reduce.h"

namespace ringd::reference {

// How a type is stored and what it is calculated with.
template <typename S, typename C>
struct SameFormat {
  using Stored = S;
  using Computed = C;
  static C Decode(S s) { return s; }
  static S Encode(C c) { return static_cast<S>(c); }
};
struct Float16Format {
  using Stored = std::uint16_t;
  using Computed = float;
  static float Decode(std::uint16_t s) { return Float16ToFloat(s); }
  static std::uint16_t Encode(float c) { return FloatToFloat16(c); }
};
struct Bfloat16Format {
  using Stored = std::uint16_t;
  using Computed = float;
  static float Decode(std::uint16_t s) { return Bfloat16ToFloat(s); }
  static std::uint16_t Encode(float c) { return FloatToBfloat16(c); }
};
struct E4M3Format {
  using Stored = std::uint8_t;
  using Computed = float;
  static float Decode(std::uint8_t s) { return Float8E4M3ToFloat(s); }
  static std::uint8_t Encode(float c) { return FloatToFloat8<Float8E4M3>(c); }
};
struct E5M2Format {
  using Stored = std::uint8_t;
  using Computed = float;
  static float Decode(std::uint8_t s) { return Float8E5M2ToFloat(s); }
  static std::uint8_t Encode(float c) { return FloatToFloat8<Float8E5M2>(c); }
};
struct BoolFormat {
  using Stored = std::uint8_t;
  using Computed = bool;
  static bool Decode(std::uint8_t s) { return s != 0; }
  static std::uint8_t Encode(bool c) { return c ? 1 : 0; }
};

// Calls visit(Format{}) with the format of `type`.
template <typename Visitor>
void WithFormat(DataType type, Visitor visit) {
  switch (type) {
    case DataType::kUint8:
      return visit(SameFormat<std::uint8_t, std::uint8_t>{});
    case DataType::kInt8:
      return visit(SameFormat<std::int8_t, std::int8_t>{});
    case DataType::kUint16:
      return visit(SameFormat<std::uint16_t, std::uint16_t>{});
    case DataType::kInt16:
      return visit(SameFormat<std::int16_t, std::int16_t>{});
    case DataType::kUint32:
      return visit(SameFormat<std::uint32_t, std::uint32_t>{});
    case DataType::kInt32:
      return visit(SameFormat<std::int32_t, std::int32_t>{});
    case DataType::kUint64:
      return visit(SameFormat<std::uint64_t, std::uint64_t>{});
    case DataType::kInt64:
      return visit(SameFormat<std::int64_t, std::int64_t>{});
    case DataType::kFloat16:
      return visit(Float16Format{});
    case DataType::kBfloat16:
      return visit(Bfloat16Format{});
    case DataType::kFloat32:
      return visit(SameFormat<float, float>{});
    case DataType::kFloat64:
      return visit(SameFormat<double, double>{});
    case DataType::kBool:
      return visit(BoolFormat{});
    case DataType::kFloat8E4M3:
      return visit(E4M3Format{});
    case DataType::kFloat8E5M2:
      return visit(E5M2Format{});
  }
}

template <typename C>
C Combine(ReduceOp op, C a, C b) {
  if constexpr (std::is_same_v<C, bool>) {
    return op == ReduceOp::kMin || op == ReduceOp::kProduct ? a && b : a || b;
  } else if constexpr (std::is_floating_point_v<C>) {
    switch (op) {
      case ReduceOp::kMin:
        return std::isnan(a) ? a : std::isnan(b) ? b : std::min(a, b);
      case ReduceOp::kMax:
        return std::isnan(a) ? a : std::isnan(b) ? b : std::max(a, b);
      case ReduceOp::kProduct:
        return a * b;
      default:
        return a + b;
    }
  } else {
    switch (op) {
      case ReduceOp::kMin:
        return std::min(a, b);
      case ReduceOp::kMax:
        return std::max(a, b);
      case ReduceOp::kProduct:
        return static_cast<C>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
      default:
        return static_cast<C>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
    }
  }
}

template <typename C>
C ScaleOne(C value, const Scaling& scaling) {
  if constexpr (std::is_same_v<C, bool>) {
    return value;
  } else if constexpr (std::is_floating_point_v<C>) {
    if (scaling.IsIdentity()) return value;
    return value * static_cast<C>(scaling.factor / static_cast<double>(scaling.divisor));
  } else {
    if (scaling.factor != 1.0) {
      // 80-bit arithmetic holds every product of these tests exactly enough to truncate.
      const auto product = std::trunc(static_cast<double>(value) * scaling.factor);
      const auto high = static_cast<long double>(std::numeric_limits<C>::max());
      const auto low = static_cast<long double>(std::numeric_limits<C>::min());
      value = product >= high      ? std::numeric_limits<C>::max()
              : product <= low     ? std::numeric_limits<C>::min()
              : product != product ? C{0}
                                   : static_cast<C>(product);
    }
    const auto wide = static_cast<__int128>(value);
    const __int128 quotient = wide / scaling.divisor;
    return static_cast<C>(quotient - (wide % scaling.divisor < 0 ? 1 : 0));
  }
}

// Computes one element from those of all sources, and from the partial result's unless that is
// null.
template <typename Format>
typename Format::Stored Reduce(ReduceOp op, std::span<const typename Format::Stored> elements,
                               const Scaling& scaling = {}, double prescale = 1.0,
                               const typename Format::Stored* partial = nullptr) {
  const auto decode = [&](typename Format::Stored element) {
    return ScaleOne(Format::Decode(element), Scaling{prescale, 1});
  };
  auto result = decode(elements[0]);
  for (std::size_t i = 1; i < elements.size(); ++i)
    result = Combine(op, result, decode(elements[i]));
  if (partial != nullptr) result = Combine(op, result, Format::Decode(*partial));
  return Format::Encode(ScaleOne(result, scaling));
}

// Equal bits, or what reduce.h leaves open: which NaN, and which zero comes out of min and max.
template <typename Format>
bool Same(ReduceOp op, typename Format::Stored a, typename Format::Stored b) {
  if (std::memcmp(&a, &b, sizeof(a)) == 0) return true;
  if constexpr (std::is_floating_point_v<typename Format::Computed>) {
    const auto x = Format::Decode(a);
    const auto y = Format::Decode(b);
    if (std::isnan(x) && std::isnan(y)) return true;
    return (op == ReduceOp::kMin || op == ReduceOp::kMax) && x == 0 && y == 0;
  }
  return false;
}

}  // namespace ringd::reference

#endif  // RINGD_TESTS_PROTO_REDUCE_REFERENCE_H_
