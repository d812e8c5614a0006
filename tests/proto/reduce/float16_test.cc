#include "proto/reduce/float16.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "tests/proto/reduce/rounding.h"

namespace ringd {
namespace {

constexpr reference::SmallFloat kFloat16{10, 5, 15};
constexpr reference::SmallFloat kBfloat16{7, 8, 127};

template <typename Decode, typename Encode>
void CheckAllValues(const reference::SmallFloat& format, Decode decode, Encode encode) {
  const std::uint32_t infinity = ((1u << format.exponent_bits) - 1) << format.mantissa_bits;
  const std::uint32_t sign = 0x8000;
  int mismatches = 0;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = decode(static_cast<std::uint16_t>(bits));
    const std::uint32_t magnitude = bits & 0x7FFF;
    if (magnitude > infinity) {
      mismatches += !std::isnan(value) || !std::isnan(decode(encode(value))) ||
                    std::signbit(value) != ((bits & sign) != 0);
      continue;
    }
    const double expected = magnitude == infinity ? (bits & sign ? -INFINITY : INFINITY)
                                                  : reference::ValueOf(format, bits);
    mismatches += value != expected || std::signbit(value) != ((bits & sign) != 0);
    mismatches += encode(value) != bits;
  }
  CHECK(mismatches == 0);
}

// Between every two neighbours: the middle goes to the even one, anything beside it to the nearer.
template <typename Encode>
void CheckAllTies(const reference::SmallFloat& format, Encode encode) {
  const std::uint32_t infinity = ((1u << format.exponent_bits) - 1) << format.mantissa_bits;
  int mismatches = 0;
  for (std::uint32_t bits = 0; bits < infinity; ++bits) {
    const double low = reference::ValueOf(format, bits);
    const double high =
        reference::ValueOf(format, bits + 1);  // the would-be next value below infinity
    const auto middle = static_cast<float>((low + high) / 2);
    REQUIRE(middle == (low + high) / 2);
    for (const float sign : {1.0f, -1.0f}) {
      for (const float value :
           {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, INFINITY)}) {
        const double rounded = reference::Round(format, value);
        const std::uint16_t code = encode(sign * value);
        const double result =
            (code & 0x7FFFu) == infinity ? high : reference::ValueOf(format, code & 0x7FFFu);
        mismatches += result != rounded || ((code & 0x8000u) != 0) != (sign < 0);
      }
    }
  }
  CHECK(mismatches == 0);
}

TEST_CASE("Float16: all 65536 values decode as defined and encode back") {
  CheckAllValues(kFloat16, Float16ToFloat, FloatToFloat16);
}

TEST_CASE("Float16: every tie rounds to even, up to infinity") {
  CheckAllTies(kFloat16, FloatToFloat16);
  CHECK(FloatToFloat16(std::numeric_limits<float>::max()) == 0x7C00);
  CHECK(FloatToFloat16(-1e6f) == 0xFC00);
  CHECK(FloatToFloat16(std::numeric_limits<float>::denorm_min()) == 0);
}

TEST_CASE("Bfloat16: all 65536 values decode as defined and encode back") {
  CheckAllValues(kBfloat16, Bfloat16ToFloat, FloatToBfloat16);
}

TEST_CASE("Bfloat16: every tie rounds to even, up to infinity") {
  CheckAllTies(kBfloat16, FloatToBfloat16);
  CHECK(FloatToBfloat16(std::numeric_limits<float>::max()) == 0x7F80);
}

TEST_CASE("Bfloat16: a NaN whose payload is in the lower half stays a NaN") {
  CHECK(std::isnan(Bfloat16ToFloat(FloatToBfloat16(std::bit_cast<float>(0x7F800001u)))));
}

}  // namespace
}  // namespace ringd
