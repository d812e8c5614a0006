#include "proto/reduce/combine.h"

#include <algorithm>
#include <array>

namespace ringd {
namespace {

// More sources than this are combined in several passes.
constexpr std::size_t kSourcesPerPass = 16;
// Two such pieces fit the first-level cache.
constexpr std::size_t kPieceBytes = 8 * 1024;

}  // namespace

void CombineContributions(DataType type, ReduceOp op, double prescale, const void* partial,
                          std::span<const void* const> sources, std::span<void* const> destinations,
                          std::size_t count, Scaling postscale, Streaming streaming) noexcept {
  if (prescale == 1.0 && sources.size() <= kSourcesPerPass) {
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
