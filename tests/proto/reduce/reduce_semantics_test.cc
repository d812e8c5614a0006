// What reduce.h promises in words.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "proto/reduce/reduce.h"
#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#include "proto/reduce/float16.h"
#include "proto/reduce/float8.h"
#include "tests/proto/reduce/instruction_sets.h"

namespace ringd {
namespace {

// More than a block, so that the result comes from the vector loop, and a remainder.
constexpr std::size_t kCount = 1003;

// Every element of every source alike.
template <typename T>
T ReduceAlike(DataType type, ReduceOp op, std::vector<T> values, Scaling scaling = {}) {
  std::vector<std::vector<T>> buffers;
  for (const T value : values) buffers.emplace_back(kCount, value);
  std::vector<const void*> sources;
  for (const auto& buffer : buffers) sources.push_back(buffer.data());
  std::vector<T> result(kCount);
  void* const destinations[] = {result.data()};
  ReduceManyToMany(type, op, sources, destinations, kCount, scaling);
  CHECK(std::memcmp(&result.front(), &result.back(), sizeof(T)) ==
        0);  // vector loop and remainder agree
  return result.front();
}

TEST_CASE("Reduce: integer sums and products wrap") {
  ForEachInstructionSet([] {
    CHECK(ReduceAlike<std::uint8_t>(DataType::kUint8, ReduceOp::kSum, {200, 100}) == 44);
    CHECK(ReduceAlike<std::int8_t>(DataType::kInt8, ReduceOp::kSum, {127, 1}) == -128);
    CHECK(ReduceAlike<std::int8_t>(DataType::kInt8, ReduceOp::kProduct, {-128, -1}) == -128);
    CHECK(ReduceAlike<std::int32_t>(DataType::kInt32, ReduceOp::kSum,
                                    {std::numeric_limits<std::int32_t>::max(), 1}) ==
          std::numeric_limits<std::int32_t>::min());
    CHECK(ReduceAlike<std::int64_t>(DataType::kInt64, ReduceOp::kProduct,
                                    {std::int64_t{1} << 62, 4}) == 0);
  });
}

TEST_CASE("Reduce: bool takes any byte but 0 for true and gives 0 or 1") {
  ForEachInstructionSet([] {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMax}) {
      CHECK(ReduceAlike<std::uint8_t>(DataType::kBool, op, {0, 0}) == 0);
      CHECK(ReduceAlike<std::uint8_t>(DataType::kBool, op, {0, 200}) == 1);
      CHECK(ReduceAlike<std::uint8_t>(DataType::kBool, op, {1, 255}) == 1);
    }
    for (const ReduceOp op : {ReduceOp::kProduct, ReduceOp::kMin}) {
      CHECK(ReduceAlike<std::uint8_t>(DataType::kBool, op, {0, 200}) == 0);
      CHECK(ReduceAlike<std::uint8_t>(DataType::kBool, op, {2, 200}) == 1);
    }
    CHECK(ReduceAlike<std::uint8_t>(DataType::kBool, ReduceOp::kAverage, {1, 0},
                                    Scaling::AverageOf(2)) == 1);
  });
}

TEST_CASE("Reduce: a NaN in any source gives NaN for min and max") {
  ForEachInstructionSet([] {
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
      for (std::size_t place = 0; place < 3; ++place) {
        std::vector<float> f32(3, 1.0f);
        f32[place] = kNan;
        CHECK(std::isnan(ReduceAlike(DataType::kFloat32, op, f32)));
        CHECK(std::isnan(
            ReduceAlike(DataType::kFloat64, op, std::vector<double>(f32.begin(), f32.end()))));
        std::vector<std::uint16_t> f16(3, 0x3C00), bf16(3, 0x3F80);
        f16[place] = 0x7E00;
        bf16[place] = 0x7FC0;
        CHECK(std::isnan(Float16ToFloat(ReduceAlike(DataType::kFloat16, op, f16))));
        CHECK(std::isnan(Bfloat16ToFloat(ReduceAlike(DataType::kBfloat16, op, bf16))));
        std::vector<std::uint8_t> f8(3, 0x38);
        f8[place] = 0x7F;
        CHECK(std::isnan(Float8E4M3ToFloat(ReduceAlike(DataType::kFloat8E4M3, op, f8))));
        CHECK(std::isnan(Float8E5M2ToFloat(ReduceAlike(DataType::kFloat8E5M2, op, f8))));
      }
    }
  });
}

TEST_CASE("Reduce: float8 sums stop at the largest finite value, infinity and NaN stay marked") {
  ForEachInstructionSet([] {
    const auto e4m3 = [](std::vector<std::uint8_t> v) {
      return ReduceAlike(DataType::kFloat8E4M3, ReduceOp::kSum, v);
    };
    const auto e5m2 = [](std::vector<std::uint8_t> v) {
      return ReduceAlike(DataType::kFloat8E5M2, ReduceOp::kSum, v);
    };
    CHECK(e4m3({0x7E, 0x7E}) == 0x7E);  // 448 + 448
    CHECK(e4m3({0xFE, 0xFE}) == 0xFE);
    CHECK((e4m3({0x7F, 0x38}) & 0x7F) == 0x7F);  // NaN + 1
    CHECK(e5m2({0x7B, 0x7B}) == 0x7B);           // 57344 + 57344
    CHECK(e5m2({0x7C, 0x7B}) == 0x7C);           // infinity + 57344
    CHECK((e5m2({0x7C, 0xFC}) & 0x7F) > 0x7C);   // infinity - infinity
  });
}

TEST_CASE("Reduce: narrow types are rounded once for all sources") {
  ForEachInstructionSet([] {
    // 2048 + 1 + 1 in float16: each 1 alone would be rounded away (ties to even), together they
    // count.
    CHECK(ReduceAlike<std::uint16_t>(DataType::kFloat16, ReduceOp::kSum,
                                     {0x6800, 0x3C00, 0x3C00}) == 0x6801);
    // 256 + 1 + 1 in bfloat16.
    CHECK(ReduceAlike<std::uint16_t>(DataType::kBfloat16, ReduceOp::kSum,
                                     {0x4380, 0x3F80, 0x3F80}) == 0x4381);
    // An average whose sum would overflow float16: four times 40000.
    const std::uint16_t big = FloatToFloat16(40000.0f);
    CHECK(ReduceAlike<std::uint16_t>(DataType::kFloat16, ReduceOp::kAverage, {big, big, big, big},
                                     Scaling::AverageOf(4)) == big);
    CHECK(ReduceAlike<std::uint16_t>(DataType::kFloat16, ReduceOp::kSum, {big, big}) == 0x7C00);
  });
}

TEST_CASE("Reduce: averages of integers are exact and round toward minus infinity") {
  ForEachInstructionSet([] {
    CHECK(ReduceAlike<std::int32_t>(DataType::kInt32, ReduceOp::kAverage, {-3, -4},
                                    Scaling::AverageOf(2)) == -4);
    CHECK(ReduceAlike<std::int32_t>(DataType::kInt32, ReduceOp::kAverage, {3, 4},
                                    Scaling::AverageOf(2)) == 3);
    const std::int64_t big = (std::int64_t{1} << 61) + 1;  // not a double
    CHECK(ReduceAlike<std::int64_t>(DataType::kInt64, ReduceOp::kAverage, {big, big, big},
                                    Scaling::AverageOf(3)) == big);
    CHECK(ReduceAlike<std::int64_t>(DataType::kInt64, ReduceOp::kAverage, {-big, -big, -big - 1},
                                    Scaling::AverageOf(3)) == -big - 1);
  });
}

TEST_CASE("Scale and CopyScaled: multiply integers toward zero, floats in their own precision") {
  std::vector<std::int32_t> integers = {-7, 7, 2000000000};
  Scale(DataType::kInt32, integers.data(), integers.size(), {1.5, 1});
  CHECK(integers == std::vector<std::int32_t>{-10, 10, std::numeric_limits<std::int32_t>::max()});
  std::vector<float> floats = {1.0f, -3.0f}, scaled(2);
  CopyScaled(DataType::kFloat32, scaled.data(), floats.data(), 2, Scaling::AverageOf(4));
  CHECK(scaled == std::vector<float>{0.25f, -0.75f});
  CopyScaled(DataType::kFloat32, floats.data(), floats.data(), 2);
  CHECK(floats == std::vector<float>{1.0f, -3.0f});
}

#if defined(__SSE2__)
TEST_CASE(
    "Reduce: subnormal numbers count even in a thread that flushes them, which keeps its setting") {
  ForEachInstructionSet([] {
    const unsigned saved = _mm_getcsr();
    constexpr unsigned kFlushAndRoundUp = 0x8040 | 0x4000 | 0x1F80;
    _mm_setcsr(kFlushAndRoundUp);
    const auto f32 = ReduceAlike<std::uint32_t>(DataType::kFloat32, ReduceOp::kSum, {1, 2});
    const auto bf16 = ReduceAlike<std::uint16_t>(DataType::kBfloat16, ReduceOp::kSum, {1, 2});
    const unsigned after = _mm_getcsr() & ~0x3Fu;
    _mm_setcsr(saved);
    CHECK(f32 == 3);
    CHECK(bf16 == 3);
    CHECK(after == kFlushAndRoundUp);
  });
}
#endif

TEST_CASE("Reduce: nothing to do writes nothing") {
  std::uint32_t value = 42;
  void* const destinations[] = {&value};
  const void* const sources[] = {&value};
  ReduceManyToMany(DataType::kUint32, ReduceOp::kSum, {}, destinations, 1);
  ReduceManyToMany(DataType::kUint32, ReduceOp::kSum, sources, {}, 1);
  ReduceManyToMany(DataType::kUint32, ReduceOp::kSum, sources, destinations, 0, {3.0, 1});
  ReduceManyToMany(static_cast<DataType>(200), ReduceOp::kSum, sources, destinations, 1, {3.0, 1});
  ReduceManyToMany(DataType::kUint32, static_cast<ReduceOp>(200), sources, destinations, 1,
                   {3.0, 1});
  CopyScaled(static_cast<DataType>(200), &value, &value, 1, {3.0, 1});
  CHECK(value == 42);
}

}  // namespace
}  // namespace ringd
