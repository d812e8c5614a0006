#include "proto/reduce/tensor_scaling.h"

#include <catch2/catch.hpp>

namespace ringd {
namespace {

TEST_CASE("ScalingOf: an average's total is divided, but of types whose range a sum leaves") {
  const auto of = [](DataType type, int ranks, bool several_nodes) {
    return ScalingOf(type, ReduceOp::kAverage, 3.0, 5.0, ranks, several_nodes);
  };
  const TensorScaling total = {3.0, {5.0, 6}};
  for (const DataType type : {DataType::kFloat32, DataType::kBfloat16, DataType::kInt64}) {
    CHECK(of(type, 6, true) == total);
  }
  for (const DataType type : {DataType::kFloat16, DataType::kFloat8E4M3, DataType::kFloat8E5M2}) {
    CHECK(of(type, 6, false) == total);
    CHECK(of(type, 6, true) == TensorScaling{3.0 / 8, {40.0, 6}});
    CHECK(of(type, 8, true) == TensorScaling{3.0 / 8, {40.0, 8}});
    CHECK(ScalingOf(type, ReduceOp::kSum, 3.0, 5.0, 6, true) == TensorScaling{3.0, {5.0, 1}});
  }
}

// As with gradient_predivide_factor: a second division would leave nothing of small numbers.
TEST_CASE("ScalingOf: an average is divided by no more than its prescale leaves to be divided") {
  const auto of = [](double prescale) {
    return ScalingOf(DataType::kFloat16, ReduceOp::kAverage, prescale, 1.0, 6, true);
  };
  CHECK(of(1.0 / 2) == TensorScaling{1.0 / 8, {4.0, 6}});
  CHECK(of(-1.0 / 2) == TensorScaling{-1.0 / 8, {4.0, 6}});
  CHECK(of(1.0 / 6) == TensorScaling{1.0 / 6, {1.0, 6}});
  CHECK(of(1.0 / 8) == TensorScaling{1.0 / 8, {1.0, 6}});
  CHECK(of(1024.0) == TensorScaling{128.0, {8.0, 6}});
  CHECK(of(0.0) == TensorScaling{0.0, {1.0, 6}});
}

}  // namespace
}  // namespace ringd
