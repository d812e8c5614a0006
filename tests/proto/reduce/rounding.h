// Rounding to a small floating-point format by its definition: to a multiple of the format's step.
#ifndef RINGD_TESTS_PROTO_REDUCE_ROUNDING_H_
#define RINGD_TESTS_PROTO_REDUCE_ROUNDING_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace ringd::reference {

struct SmallFloat {
  int mantissa_bits;
  int exponent_bits;
  int bias;
};

// The value that `bits` stand for, if they are neither infinity nor NaN.
inline double ValueOf(const SmallFloat& format, std::uint32_t bits) {
  const std::uint32_t fraction = bits & ((1u << format.mantissa_bits) - 1);
  const std::uint32_t exponent =
      (bits >> format.mantissa_bits) & ((1u << format.exponent_bits) - 1);
  const bool negative = (bits >> (format.mantissa_bits + format.exponent_bits)) & 1u;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, 1 - format.bias - format.mantissa_bits)
                    : std::ldexp((1u << format.mantissa_bits) + fraction,
                                 static_cast<int>(exponent) - format.bias - format.mantissa_bits);
  return negative ? -magnitude : magnitude;
}

// The nearest multiple of the step at `value`, ties to the even multiple; knows no largest value.
inline double Round(const SmallFloat& format, double value) {
  if (value == 0 || !std::isfinite(value)) return value;
  const int exponent = std::max(std::ilogb(value), 1 - format.bias);
  const double step = std::ldexp(1.0, exponent - format.mantissa_bits);
  return std::nearbyint(value / step) * step;
}

}  // namespace ringd::reference

#endif  // RINGD_TESTS_PROTO_REDUCE_ROUNDING_H_
