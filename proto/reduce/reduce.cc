#include "proto/reduce/reduce.h"

#include <cstring>

#include "proto/reduce/float_environment.h"
#include "proto/reduce/pass.h"

namespace ringd {
namespace {

using reduce_internal::Pass;

// What one call may touch before it counts as large: about a core's share of a last-level cache.
constexpr std::size_t kCachedBytes = std::size_t{8} << 20;

bool IsLarge(Streaming streaming, std::size_t touched_bytes) noexcept {
  if (streaming == Streaming::kAuto) return touched_bytes > kCachedBytes;
  return streaming == Streaming::kPast;
}

// How to go through memory that the caches don't hold (measured on Zen 5 by
// tests/bench/kernels_benchmark): in place, the lines to be written have just been read, and asking
// for them early gains up to a third; else storing past the caches saves reading the destination,
// and only many sources are too much for the processor's own prefetching.
void ChooseMemoryPath(Pass& pass) noexcept {
  bool in_place = pass.partial == pass.destinations[0];
  for (std::size_t i = 0; i < pass.source_count && !in_place; ++i) {
    in_place = pass.sources[i] == pass.destinations[0];
  }
  pass.past_caches = !in_place;
  pass.prefetch = in_place || pass.source_count + (pass.partial != nullptr ? 1 : 0) > 2;
}

void Run(const Pass& pass) noexcept {
  const DefaultFloatEnvironment environment;
  switch (pass.type) {
    case DataType::kFloat32:
    case DataType::kFloat64:
      return reduce_internal::RunFloatPass(pass);
    case DataType::kFloat16:
    case DataType::kBfloat16:
      return reduce_internal::RunFloat16Pass(pass);
    case DataType::kFloat8E4M3:
    case DataType::kFloat8E5M2:
      return reduce_internal::RunFloat8Pass(pass);
    default:
      return reduce_internal::RunIntegerPass(pass);
  }
}

}  // namespace

void CombineContributions(DataType type, ReduceOp op, double prescale, const void* partial,
                          std::span<const void* const> sources, std::span<void* const> destinations,
                          std::size_t count, Scaling postscale, Streaming streaming) noexcept {
  if (!IsValid(type) || !IsValid(op) || sources.empty() || destinations.empty() || count == 0)
    return;
  const std::size_t buffers = sources.size() + (partial != nullptr ? 1 : 0) + destinations.size();
  Pass pass{
      .type = type,
      .op = op,
      .sources = sources.data(),
      .source_count = sources.size(),
      .prescale = prescale,
      .partial = partial,
      .destinations = destinations.data(),
      .destination_count = destinations.size(),
      .count = count,
      .scaling = postscale,
      .past_caches = false,
      .prefetch = false,
  };
  if (IsLarge(streaming, count * SizeOf(type) * buffers)) ChooseMemoryPath(pass);
  Run(pass);
}

void ReduceManyToMany(DataType type, ReduceOp op, std::span<const void* const> sources,
                      std::span<void* const> destinations, std::size_t count, Scaling scaling,
                      Streaming streaming) noexcept {
  CombineContributions(type, op, 1.0, nullptr, sources, destinations, count, scaling, streaming);
}

void ReduceMany(DataType type, ReduceOp op, std::span<const void* const> sources, void* destination,
                std::size_t count, Streaming streaming) noexcept {
  void* const destinations[] = {destination};
  ReduceManyToMany(type, op, sources, destinations, count, Scaling{}, streaming);
}

void ReduceInto(DataType type, ReduceOp op, void* destination, const void* source,
                std::size_t count) noexcept {
  const void* const sources[] = {destination, source};
  ReduceMany(type, op, sources, destination, count, Streaming::kCached);
}

void Scale(DataType type, void* data, std::size_t count, Scaling scaling) noexcept {
  if (scaling.IsIdentity()) return;
  CopyScaled(type, data, data, count, scaling, Streaming::kCached);
}

void CopyScaled(DataType type, void* destination, const void* source, std::size_t count,
                Scaling scaling, Streaming streaming) noexcept {
  if (!IsValid(type) || count == 0) return;
  if (!scaling.IsIdentity() && type != DataType::kBool) {
    const void* const sources[] = {source};
    void* const destinations[] = {destination};
    // With one source every operation is the same.
    return ReduceManyToMany(type, ReduceOp::kSum, sources, destinations, count, scaling, streaming);
  }
  if (destination == source) return;
  const std::size_t bytes = count * SizeOf(type);
  if (IsLarge(streaming, 2 * bytes)) {
    reduce_internal::CopyPastCaches(destination, source, bytes);
  } else {
    std::memcpy(destination, source, bytes);
  }
}

}  // namespace ringd
