#include "proto/reduce/combine.h"

#include <algorithm>

namespace ringd {
namespace {

// More sources than this are combined in several passes.
constexpr std::size_t kSourcesPerPass = 16;
// Two such pieces fit the first-level cache.
constexpr std::size_t kPieceBytes = 8 * 1024;

}  // namespace

void CombineContributions(DataType type, ReduceOp op, double prescale,
                          std::span<const void* const> sources,
                          std::span<void* const> destinations, std::size_t count,
                          Scaling postscale, Streaming streaming) noexcept {
  if (prescale == 1.0 && sources.size() <= kSourcesPerPass) {
    ReduceManyToMany(type, op, sources, destinations, count, postscale, streaming);
    return;
  }
  const std::size_t element = SizeOf(type);
  alignas(64) std::byte sum[kPieceBytes];
  alignas(64) std::byte piece[kPieceBytes];
  const std::size_t step = kPieceBytes / element;
  const Scaling before{prescale, 1};
  for (std::size_t done = 0; done < count; done += step) {
    const std::size_t elements = std::min(step, count - done);
    const std::size_t at = done * element;
    const auto from = [&](std::size_t i) { return static_cast<const std::byte*>(sources[i]) + at; };
    CopyScaled(type, sum, from(0), elements, before, Streaming::kCached);
    for (std::size_t i = 1; i < sources.size(); ++i) {
      CopyScaled(type, piece, from(i), elements, before, Streaming::kCached);
      ReduceInto(type, op, sum, piece, elements);
    }
    for (void* destination : destinations) {
      CopyScaled(type, static_cast<std::byte*>(destination) + at, sum, elements, postscale,
                 Streaming::kCached);
    }
  }
}

}  // namespace ringd
