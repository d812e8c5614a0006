#include "daemon/schedule/link/link_model.h"

#include <algorithm>
#include <bit>
#include <cstdint>

namespace ringd {

bool LinkModel::IsFlat(std::size_t bytes) const noexcept {
  return flat_bytes > 0 && MayBeFlat(node_count) &&
         bytes <= flat_bytes / static_cast<std::size_t>(node_count - 1);
}

bool LinkModel::IsRing(std::size_t bytes) const noexcept {
  return !IsFlat(bytes) && (bytes > small_bytes || small_bytes == 0);
}

AllReduceShape LinkModel::ShapeOf(std::size_t bytes) const noexcept {
  if (node_count < 2) return {};
  const auto nodes = static_cast<unsigned>(node_count);
  const auto size = static_cast<double>(bytes);
  if (IsFlat(bytes)) return {2, 2.0 * (node_count - 1) * size};
  if (IsRing(bytes)) {
    return {2 * (node_count - 1), 2.0 * (node_count - 1) / node_count * size};
  }
  // Nodes beyond a power of two give their input to another, and get the result, in two rounds
  // more.
  const int rounds = std::bit_width(nodes) - 1 + (std::has_single_bit(nodes) ? 0 : 2);
  return {rounds, rounds * size};
}

std::size_t SmallBytesOf(const LinkModel& link, std::size_t most) noexcept {
  if (link.node_count < 2) return most;
  LinkModel doubling = link;
  doubling.flat_bytes = 0;
  doubling.small_bytes = most;
  LinkModel ring = link;
  ring.flat_bytes = 0;
  ring.small_bytes = 0;
  // Both times are straight lines; doubling's begins lower, and where they meet is what is asked
  // for.
  const AllReduceShape few = doubling.ShapeOf(std::min<std::size_t>(1, most));
  const AllReduceShape many = ring.ShapeOf(1);
  const double more_bytes = few.line_bytes - many.line_bytes;  // for each byte of the buffer
  if (more_bytes <= 0) return most;
  const double latency = static_cast<double>(link.latency.count()) * 1e-9;
  const double bytes = (many.rounds - few.rounds) * latency * link.bytes_per_second / more_bytes;
  return static_cast<std::size_t>(std::clamp(bytes, 0.0, static_cast<double>(most)));
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
