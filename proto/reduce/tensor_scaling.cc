#include "proto/reduce/tensor_scaling.h"

#include <algorithm>
#include <cmath>

namespace ringd {
namespace {

// Sums of ordinary numbers can leave their range.
bool HasNarrowRange(DataType type) noexcept {
  return type == DataType::kFloat16 || type == DataType::kFloat8E4M3 ||
         type == DataType::kFloat8E5M2;
}

// The least power of two, from 1 on, by which elements that have been multiplied by `prescale` must
// be divided so that the sum of all ranks' has their range.
double LeastDivisor(double prescale, int rank_count) noexcept {
  double power = 1.0;
  while (power < rank_count * std::min(1.0, std::abs(prescale))) power *= 2.0;
  return power;
}

}  // namespace

TensorScaling ScalingOf(DataType type, ReduceOp op, double prescale, double postscale,
                        int rank_count, bool several_nodes) noexcept {
  TensorScaling scaling{prescale, {postscale, 1}};
  if (op != ReduceOp::kAverage) return scaling;
  scaling.result.divisor = rank_count;
  if (several_nodes && HasNarrowRange(type)) {
    const double power = LeastDivisor(prescale, rank_count);
    scaling.prescale /= power;
    scaling.result.factor *= power;
  }
  return scaling;
}

}  // namespace ringd
