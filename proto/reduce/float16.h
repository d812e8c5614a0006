// The two 16-bit floating-point formats, one value at a time, in portable C++.
#ifndef RINGD_PROTO_REDUCE_FLOAT16_H_
#define RINGD_PROTO_REDUCE_FLOAT16_H_

#include <bit>
#include <cstdint>

namespace ringd {

constexpr float Bfloat16ToFloat(std::uint16_t bits) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// Rounds to nearest even; what is too large becomes infinity; NaN stays NaN (quiet).
constexpr std::uint16_t FloatToBfloat16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

constexpr float Float16ToFloat(std::uint16_t bits) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t magnitude = bits & 0x7FFFu;
  if (magnitude >= 0x7C00u) {  // infinity or NaN (made quiet)
    const std::uint32_t quiet = magnitude > 0x7C00u ? 0x400000u : 0u;
    return std::bit_cast<float>(sign | 0x7F800000u | ((magnitude & 0x3FFu) << 13) | quiet);
  }
  if (magnitude < 0x400u) {  // zero or subnormal: a multiple of 2^-24
    const float value = static_cast<float>(magnitude) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
  }
  return std::bit_cast<float>(sign | ((magnitude << 13) + (112u << 23)));
}

// Rounds to nearest even; what is too large becomes infinity; NaN stays NaN (quiet).
constexpr std::uint16_t FloatToFloat16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  std::uint32_t result = 0;
  if (magnitude > 0x7F800000u) {
    result = 0x7E00u | ((magnitude >> 13) & 0x3FFu);
  } else if (magnitude >= 0x47800000u) {  // 2^16
    result = 0x7C00u;
  } else if (magnitude < 0x38800000u) {  // 2^-14: the result is subnormal
    // Adding 0.5 leaves a unit in the last place of 2^-24, float16's smallest step: the addition
    // rounds.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    result = std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(0.5f);
  } else {  // rounding may carry into the exponent, up to infinity
    result = (magnitude - (112u << 23) + 0xFFFu + ((magnitude >> 13) & 1u)) >> 13;
  }
  return static_cast<std::uint16_t>(sign | result);
}

}  // namespace ringd

#endif  // RINGD_PROTO_REDUCE_FLOAT16_H_
