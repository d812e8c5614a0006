#include "proto/reduce/combine.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

namespace ringd {
namespace {

// More sources than this are combined in several passes.
constexpr std::size_t kSourcesPerPass = 16;
// Two such pieces fit the first-level cache.
constexpr std::size_t kPieceBytes = 8 * 1024;

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

void CombineContributions(DataType type, ReduceOp op, double prescale, const void* partial,
                          std::span<const void* const> sources, std::span<void* const> destinations,
                          std::size_t count, Scaling postscale, Streaming streaming) noexcept {
  // A sum is scaled as well as its addends where it is not rounded in between.
  const bool scales_the_sum = prescale != 1.0 && HasNarrowRange(type) && partial == nullptr &&
                              (op == ReduceOp::kSum || op == ReduceOp::kAverage) &&
                              postscale.IsIdentity();
  if ((prescale == 1.0 || scales_the_sum) && sources.size() <= kSourcesPerPass) {
    if (scales_the_sum) postscale.factor = prescale;
    std::array<const void*, kSourcesPerPass + 1> all;
    std::size_t used = 0;
    for (const void* source : sources) all[used++] = source;
    if (partial != nullptr) all[used++] = partial;
    ReduceManyToMany(type, op, std::span(all.data(), used), destinations, count, postscale,
                     streaming);
    return;
  }
  const std::size_t element = SizeOf(type);
  alignas(64) std::byte sum[kPieceBytes];
  alignas(64) std::byte addend[kPieceBytes];
  const std::size_t step = kPieceBytes / element;
  for (std::size_t done = 0; done < count; done += step) {
    const std::size_t elements = std::min(step, count - done);
    const std::size_t at = done * element;
    bool first = true;
    for (const void* source : sources) {
      CopyScaled(type, first ? sum : addend, static_cast<const std::byte*>(source) + at, elements,
                 Scaling{prescale, 1}, Streaming::kCached);
      if (!first) ReduceInto(type, op, sum, addend, elements);
      first = false;
    }
    if (partial != nullptr) {
      ReduceInto(type, op, sum, static_cast<const std::byte*>(partial) + at, elements);
    }
    for (void* destination : destinations) {
      CopyScaled(type, static_cast<std::byte*>(destination) + at, sum, elements, postscale,
                 Streaming::kCached);
    }
  }
}

}  // namespace ringd
