#include "proto/reduce/float8.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "tests/proto/reduce/rounding.h"

namespace ringd {
namespace {

constexpr reference::SmallFloat kE4M3{3, 4, 7};
constexpr reference::SmallFloat kE5M2{2, 5, 15};

// Every value, and both sides of the middle between every two: rounded by the definition, clamped
// at `largest`.
template <typename Format, typename Decode>
void CheckRounding(const reference::SmallFloat& format, Decode decode, std::uint32_t largest_code) {
  const double largest = reference::ValueOf(format, largest_code);
  CHECK(largest == Format::kLargest);
  for (std::uint32_t bits = 0; bits <= largest_code; ++bits) {
    const double low = reference::ValueOf(format, bits);
    const double high = reference::ValueOf(format, bits + 1);
    const auto middle = static_cast<float>((low + high) / 2);
    for (const float value : {static_cast<float>(low), middle, std::nextafter(middle, 0.0f),
                              std::nextafter(middle, INFINITY)}) {
      for (const float sign : {1.0f, -1.0f}) {
        INFO("code " << bits << " value " << sign * value);
        const float result = decode(FloatToFloat8<Format>(sign * value));
        CHECK(result == sign * std::min(largest, reference::Round(format, value)));
        CHECK(std::signbit(result) == (sign < 0));
      }
    }
  }
}

TEST_CASE("Float8E4M3: all 256 values decode as defined and encode back") {
  for (std::uint32_t bits = 0; bits < 256; ++bits) {
    INFO("code " << bits);
    const float value = Float8E4M3ToFloat(static_cast<std::uint8_t>(bits));
    if ((bits & 0x7F) == 0x7F) {
      CHECK(std::isnan(value));
    } else {
      CHECK(value == reference::ValueOf(kE4M3, bits));
    }
    CHECK(std::signbit(value) == (bits >= 0x80));
    CHECK(FloatToFloat8<Float8E4M3>(value) == bits);
  }
}

TEST_CASE("Float8E5M2: all 256 values decode as defined and encode back") {
  for (std::uint32_t bits = 0; bits < 256; ++bits) {
    INFO("code " << bits);
    const float value = Float8E5M2ToFloat(static_cast<std::uint8_t>(bits));
    const std::uint32_t magnitude = bits & 0x7F;
    if (magnitude > 0x7C) {
      CHECK(std::isnan(value));
      CHECK(std::isnan(Float8E5M2ToFloat(FloatToFloat8<Float8E5M2>(value))));
      continue;
    }
    CHECK(std::fabs(value) ==
          (magnitude == 0x7C ? INFINITY : std::fabs(reference::ValueOf(kE5M2, bits))));
    CHECK(std::signbit(value) == (bits >= 0x80));
    CHECK(FloatToFloat8<Float8E5M2>(value) == bits);
  }
}

TEST_CASE("Float8E4M3: rounds to nearest even and stops at 448") {
  CheckRounding<Float8E4M3>(kE4M3, Float8E4M3ToFloat, 0x7E);
  CHECK(FloatToFloat8<Float8E4M3>(std::numeric_limits<float>::max()) == 0x7E);
  CHECK(FloatToFloat8<Float8E4M3>(-1e9f) == 0xFE);
}

TEST_CASE("Float8E5M2: rounds to nearest even and stops at 57344") {
  CheckRounding<Float8E5M2>(kE5M2, Float8E5M2ToFloat, 0x7B);
  CHECK(FloatToFloat8<Float8E5M2>(std::numeric_limits<float>::max()) == 0x7B);
}

TEST_CASE("Float8: infinity stays marked, as NaN where the format has no infinity") {
  CHECK(FloatToFloat8<Float8E4M3>(INFINITY) == 0x7F);
  CHECK(FloatToFloat8<Float8E4M3>(-INFINITY) == 0xFF);
  CHECK(FloatToFloat8<Float8E5M2>(INFINITY) == 0x7C);
  CHECK(FloatToFloat8<Float8E5M2>(-INFINITY) == 0xFC);
}

}  // namespace
}  // namespace ringd
