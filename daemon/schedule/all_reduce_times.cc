#include "daemon/schedule/all_reduce_times.h"

#include <algorithm>

namespace ringd {
namespace {

constexpr double kMargin = 1.05;

// What going through one node saves; negative if it costs.
double Gain(const AllReduceTimes& times) {
  return static_cast<double>(times.doubling.count()) -
         kMargin * static_cast<double>(times.flat.count());
}

}  // namespace

std::size_t LargestFlat(std::span<const AllReduceTimes> times, std::size_t assumed) noexcept {
  const auto lost = std::find_if(times.begin(), times.end(),
                                 [](const AllReduceTimes& tried) { return Gain(tried) < 0; });
  if (lost == times.end()) {
    const std::size_t won = times.empty() ? 0 : times.back().bytes;
    return times.size() == kTriedBytes.size() ? won : std::max(won, assumed);
  }
  if (lost == times.begin()) return 0;
  const AllReduceTimes& won = *(lost - 1);
  const double share = Gain(won) / (Gain(won) - Gain(*lost));
  return won.bytes + static_cast<std::size_t>(share * static_cast<double>(lost->bytes - won.bytes));
}

}  // namespace ringd
