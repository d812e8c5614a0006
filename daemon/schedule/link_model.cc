#include "daemon/schedule/link_model.h"

#include <algorithm>
#include <bit>
#include <cstdint>

namespace ringd {

AllReduceShape LinkModel::ShapeOf(std::size_t bytes) const noexcept {
  if (node_count < 2) return {};
  const auto nodes = static_cast<unsigned>(node_count);
  const auto size = static_cast<double>(bytes);
  if (bytes > small_bytes || small_bytes == 0) {
    return {2 * (node_count - 1), 2.0 * (node_count - 1) / node_count * size};
  }
  // Nodes beyond a power of two give their input to another, and get the result, in two rounds more.
  const int rounds = std::bit_width(nodes) - 1 + (std::has_single_bit(nodes) ? 0 : 2);
  return {rounds, rounds * size};
}

std::chrono::nanoseconds LinkModel::AllReduceTime(std::size_t bytes) const noexcept {
  if (node_count < 2) return operation_overhead;
  const AllReduceShape shape = ShapeOf(bytes);
  const double seconds = shape.line_bytes / std::max(bytes_per_second, 1.0);
  // A day is longer than any step; without the bound a tiny bandwidth would overflow.
  const double bounded = std::min(seconds * 1e9, 8.64e13);
  return operation_overhead + latency * shape.rounds +
         std::chrono::nanoseconds(static_cast<std::int64_t>(bounded));
}

}  // namespace ringd
