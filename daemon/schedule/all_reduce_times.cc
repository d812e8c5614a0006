#include "daemon/schedule/all_reduce_times.h"

#include <algorithm>

namespace ringd {
namespace {

constexpr double kMargin = 1.05;
constexpr double kShareOfDaemons = 0.55;

// The largest buffer for which going through one node, in `spared_ns` less than was tried, wins.
std::size_t Largest(std::span<const AllReduceTimes> times, std::size_t assumed,
                    double spared_ns) noexcept {
  // What it saves; negative if it costs.
  const auto gain = [spared_ns](const AllReduceTimes& tried) {
    return static_cast<double>(tried.doubling.count()) -
           kMargin * (static_cast<double>(tried.flat.count()) - spared_ns);
  };
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

}  // namespace

std::size_t LargestFlat(std::span<const AllReduceTimes> times, std::size_t assumed) noexcept {
  return Largest(times, assumed, 0);
}

std::size_t LargestOnFastPath(std::span<const AllReduceTimes> times, std::size_t assumed) noexcept {
  if (times.empty()) return assumed;
  return Largest(times, assumed, kShareOfDaemons * static_cast<double>(times.front().flat.count()));
}

}  // namespace ringd
