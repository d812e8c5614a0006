// The two 8-bit floating-point formats (OCP 8-bit floating point specification), one value at a
// time, in portable C++.
#ifndef RINGD_PROTO_REDUCE_FLOAT8_H_
#define RINGD_PROTO_REDUCE_FLOAT8_H_

#include <bit>
#include <cstdint>

#include "proto/reduce/float16.h"

namespace ringd {

// What distinguishes the formats. Both have a sign bit on top and subnormals at the bottom.
struct Float8E4M3 {  // "fn": no infinity; only S1111111 is NaN
  static constexpr int kMantissaBits = 3;
  static constexpr int kExponentBias = 7;
  static constexpr float kLargest = 448.0f;
  static constexpr std::uint8_t kInfinity = 0x7F;  // NaN stands in
  static constexpr std::uint8_t kNan = 0x7F;
};

struct Float8E5M2 {  // the upper byte of a float16
  static constexpr int kMantissaBits = 2;
  static constexpr int kExponentBias = 15;
  static constexpr float kLargest = 57344.0f;
  static constexpr std::uint8_t kInfinity = 0x7C;
  static constexpr std::uint8_t kNan = 0x7F;
};

constexpr float Float8E5M2ToFloat(std::uint8_t bits) noexcept {
  return Float16ToFloat(static_cast<std::uint16_t>(bits << 8));
}

constexpr float Float8E4M3ToFloat(std::uint8_t bits) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x80u) << 8;
  const std::uint32_t magnitude = bits & 0x7Fu;
  if (magnitude == 0x7Fu) return Float16ToFloat(static_cast<std::uint16_t>(sign | 0x7E00u));
  // As a float16 the same bits mean the value times 2^(7-15).
  return Float16ToFloat(static_cast<std::uint16_t>(sign | (magnitude << 7))) * 256.0f;
}

// Rounds to nearest even; a finite value too large becomes the largest; infinity and NaN stay
// marked.
template <typename Format>
constexpr std::uint8_t FloatToFloat8(float value) noexcept {
  constexpr int kShift = 23 - Format::kMantissaBits;
  constexpr std::uint32_t kRebias = static_cast<std::uint32_t>(127 - Format::kExponentBias)
                                    << Format::kMantissaBits;
  // The smallest normal number, and a number whose unit in the last place is the subnormals' step.
  constexpr float kSmallestNormal =
      std::bit_cast<float>(static_cast<std::uint32_t>(128 - Format::kExponentBias) << 23);
  constexpr float kSubnormalRounder =
      std::bit_cast<float>(static_cast<std::uint32_t>(128 - Format::kExponentBias + kShift) << 23);

  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint8_t>((bits >> 24) & 0x80u);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return sign | Format::kNan;
  if (magnitude == 0x7F800000u) return sign | Format::kInfinity;
  float absolute = std::bit_cast<float>(magnitude);
  if (absolute > Format::kLargest) absolute = Format::kLargest;
  std::uint32_t result = 0;
  if (absolute < kSmallestNormal) {
    result = std::bit_cast<std::uint32_t>(absolute + kSubnormalRounder) -
             std::bit_cast<std::uint32_t>(kSubnormalRounder);
  } else {
    const auto clamped = std::bit_cast<std::uint32_t>(absolute);
    result =
        ((clamped + ((1u << (kShift - 1)) - 1u) + ((clamped >> kShift) & 1u)) >> kShift) - kRebias;
  }
  return static_cast<std::uint8_t>(sign | result);
}

}  // namespace ringd

#endif  // RINGD_PROTO_REDUCE_FLOAT8_H_
