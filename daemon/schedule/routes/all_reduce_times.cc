#include "daemon/schedule/routes/all_reduce_times.h"

#include <algorithm>

#include "proto/rank_exchange/rank_exchange_tree.h"

namespace ringd {
namespace {

constexpr double kMargin = 1.05;
constexpr double kShareOfDaemons = 0.55;

// The largest buffer with `gain` (in nanoseconds) above 0.
template <typename Gain>
std::size_t Largest(std::span<const AllReduceTimes> times, std::size_t assumed,
                    const Gain& gain) noexcept {
  const auto lost = std::find_if(times.begin(), times.end(),
                                 [&](const AllReduceTimes& tried) { return gain(tried) < 0; });
  if (lost == times.end()) {
    const std::size_t won = times.empty() ? 0 : times.back().bytes;
    return times.size() == kTriedBytes.size() ? won : std::max(won, assumed);
  }
  if (lost == times.begin()) return 0;
  const AllReduceTimes& won = *(lost - 1);
  const double share = gain(won) / (gain(won) - gain(*lost));
  return won.bytes + static_cast<std::size_t>(share * static_cast<double>(lost->bytes - won.bytes));
}

// What a byte costs where the line of the node in the middle is full: by the largest two buffers
// that were tried.
double LineNanosPerByte(std::span<const AllReduceTimes> times) noexcept {
  if (times.size() < 2) return 0;
  const AllReduceTimes& last = times.back();
  const AllReduceTimes& before = times[times.size() - 2];
  return std::max(0.0, static_cast<double>((last.flat - before.flat).count()) /
                           static_cast<double>(last.bytes - before.bytes));
}

double Nanos(std::chrono::nanoseconds time) noexcept { return static_cast<double>(time.count()); }

}  // namespace

std::size_t LargestFlat(std::span<const AllReduceTimes> times, std::size_t assumed) noexcept {
  return Largest(times, assumed, [](const AllReduceTimes& tried) {
    return Nanos(tried.doubling) - kMargin * Nanos(tried.flat);
  });
}

RankExchangeSizes SizesForRankExchange(std::span<const AllReduceTimes> times,
                                       std::size_t node_count, std::size_t assumed) noexcept {
  if (times.empty()) return {assumed, 0};
  const auto nodes = static_cast<std::uint32_t>(node_count);
  const double share = static_cast<double>(LoadOf(RankExchangeTree::kKnomial, nodes)) /
                       LoadOf(RankExchangeTree::kFlat, nodes);
  const double depth = DepthOf(RankExchangeTree::kKnomial, nodes);
  const double smallest = Nanos(times.front().flat);
  const double base = (1 - kShareOfDaemons) * smallest;
  const double per_byte = LineNanosPerByte(times);
  // What the bytes cost as tried, and the least they can where the line is full.
  const auto bytes = [&](const AllReduceTimes& tried) { return Nanos(tried.flat) - smallest; };
  const auto line = [&](const AllReduceTimes& tried) {
    return per_byte * static_cast<double>(tried.bytes);
  };
  const auto flat = [&](const AllReduceTimes& tried) {
    return std::max(base + bytes(tried), line(tried));
  };
  const auto knomial = [&](const AllReduceTimes& tried) {
    return std::max(depth * base + share * bytes(tried), share * line(tried));
  };
  // Of few nodes it is the flat tree.
  const bool has_knomial = share < 1;
  RankExchangeSizes sizes;
  const auto knomial_gain = [&](const AllReduceTimes& tried) {
    return Nanos(tried.doubling) - kMargin * knomial(tried);
  };
  sizes.flat = Largest(times, assumed, [&](const AllReduceTimes& tried) {
    const double gain = Nanos(tried.doubling) - kMargin * flat(tried);
    if (!has_knomial || knomial_gain(tried) < 0) return gain;
    // The k-nomial tree must win by as much.
    return std::min(gain, kMargin * knomial(tried) - flat(tried));
  });
  if (has_knomial) sizes.knomial = Largest(times, 0, knomial_gain);
  return sizes;
}

}  // namespace ringd
