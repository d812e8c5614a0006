#include "proto/reduce/tensor_scaling.h"

#include <bit>
#include <cstdint>

namespace ringd {
namespace {

// Sums of ordinary numbers can leave their range.
bool HasNarrowRange(DataType type) noexcept {
  return type == DataType::kFloat16 || type == DataType::kFloat8E4M3 ||
         type == DataType::kFloat8E5M2;
}

}  // namespace

TensorScaling ScalingOf(DataType type, ReduceOp op, double prescale, double postscale,
                        int rank_count, bool several_nodes) noexcept {
  TensorScaling scaling{prescale, {postscale, 1}};
  if (op != ReduceOp::kAverage) return scaling;
  scaling.result.divisor = rank_count;
  if (several_nodes && HasNarrowRange(type)) {
    const auto power = static_cast<double>(std::bit_ceil(static_cast<std::uint32_t>(rank_count)));
    scaling.prescale /= power;
    scaling.result.factor *= power;
  }
  return scaling;
}

}  // namespace ringd
