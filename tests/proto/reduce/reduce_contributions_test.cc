// CombineContributions in reduce.h: the order and the bits, and float16's range.
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "proto/reduce/reduce.h"
#include "proto/reduce/tensor_scaling.h"

namespace ringd {
namespace {

constexpr std::size_t kElements = 5000;

std::vector<float> AnyValues(std::mt19937& random) {
  std::uniform_real_distribution<float> any(-2.0F, 2.0F);
  std::vector<float> values(kElements);
  for (float& value : values) value = any(random);
  return values;
}

std::vector<float> Combined(ReduceOp op, double prescale, const std::vector<float>* partial,
                            const std::vector<std::vector<float>>& sources, Scaling postscale) {
  std::vector<const void*> pointers;
  for (const auto& source : sources) pointers.push_back(source.data());
  std::vector<float> result(kElements);
  void* const destinations[] = {result.data()};
  CombineContributions(DataType::kFloat32, op, prescale,
                       partial == nullptr ? nullptr : partial->data(), pointers, destinations,
                       kElements, postscale, Streaming::kCached);
  return result;
}

TEST_CASE("CombineContributions: sources combined before the partial sum came give the same bits") {
  std::mt19937 random(1);
  const Scaling third = Scaling::AverageOf(3);
  for (const std::size_t count : {1U, 2U, 3U, 16U, 17U, 20U}) {
    std::vector<std::vector<float>> sources;
    for (std::size_t i = 0; i < count; ++i) sources.push_back(AnyValues(random));
    const std::vector<float> partial = AnyValues(random);
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kMin}) {
      for (const double prescale : {1.0, 0.37}) {
        INFO(count << " sources, " << Name(op) << ", prescale " << prescale);
        const auto ahead = Combined(op, prescale, nullptr, sources, {});
        CHECK(Combined(op, 1.0, &partial, {ahead}, third) ==
              Combined(op, prescale, &partial, sources, third));
      }
    }
  }
}

TEST_CASE(
    "CombineContributions: in floats the order is that of the sources, then the partial sum") {
  // 1 is lost beside 2^24, so the order shows.
  const std::vector<std::vector<float>> sources = {std::vector<float>(kElements, 16777216.0F),
                                                   std::vector<float>(kElements, 1.0F)};
  const std::vector<float> partial(kElements, -16777216.0F);
  CHECK(Combined(ReduceOp::kSum, 1.0, &partial, sources, {}) ==
        std::vector<float>(kElements, 0.0F));
}

TEST_CASE("CombineContributions: large numbers of float16 are scaled before their sum is rounded") {
  constexpr std::uint16_t kLargest = 0x7bff;  // 65504
  const std::vector<std::uint16_t> source(kElements, kLargest);
  std::vector<std::uint16_t> partial(kElements);
  const void* const sources[] = {source.data(), source.data()};
  void* const destinations[] = {partial.data()};
  const TensorScaling scaling =
      ScalingOf(DataType::kFloat16, ReduceOp::kAverage, 1.0, 1.0, 4, true);
  CombineContributions(DataType::kFloat16, ReduceOp::kAverage, scaling.prescale, nullptr, sources,
                       destinations, kElements, {}, Streaming::kCached);
  CHECK(partial[kElements - 1] == kLargest - 0x400);  // half of it
  CombineContributions(DataType::kFloat16, ReduceOp::kAverage, scaling.prescale, partial.data(),
                       sources, destinations, kElements, scaling.result, Streaming::kCached);
  CHECK(partial[kElements - 1] == kLargest);
}

}  // namespace
}  // namespace ringd
