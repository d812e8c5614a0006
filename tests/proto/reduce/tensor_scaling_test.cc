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

}  // namespace
}  // namespace ringd
