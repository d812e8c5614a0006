#include "daemon/schedule/link/link_fit.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <map>

namespace ringd {
namespace {

// How firmly a figure is held where it was at the start, beside 1 for an observation that it alone
// decides; of what is further away than a factor of e no more than that counts. Enough to keep what
// nothing determines from drifting, too little to bend what is determined by more than a percent.
constexpr double kPrior = 0.005;
constexpr int kIterations = 40;
// The furthest that an iteration moves a figure, as a logarithm.
constexpr double kLongestStep = 2;
// Logarithmic errors beyond this count less, once the first iterations have come near.
constexpr double kOutlier = 0.25;

constexpr double kLeastLatency = 1e-7;  // s
constexpr double kMostLatency = 1.0;
constexpr double kLeastSecondsPerByte = 1e-13;  // 10 TB/s
constexpr double kMostSecondsPerByte = 1e-3;    // 1 kB/s

double Seconds(std::chrono::nanoseconds time) { return static_cast<double>(time.count()) * 1e-9; }

}  // namespace

LinkModel FitLink(const std::vector<LinkObservation>& observations, const LinkModel& start) {
  const double start_latency = std::clamp(Seconds(start.latency), kLeastLatency, kMostLatency);
  const double start_per_byte = std::clamp(1 / std::max(start.bytes_per_second, 1e-3),
                                           kLeastSecondsPerByte, kMostSecondsPerByte);
  double latency = start_latency;
  double per_byte = start_per_byte;
  for (int i = 0; i < kIterations; ++i) {
    // Gauss-Newton in logarithms: of the figures, so that they stay positive, and of the times, so
    // that what is wrong by a factor of a thousand is as easily mended as what is wrong by two.
    double xx = kPrior;
    double yy = kPrior;
    double xy = 0;
    double x1 = kPrior * std::clamp(std::log(start_latency / latency), -1.0, 1.0);
    double y1 = kPrior * std::clamp(std::log(start_per_byte / per_byte), -1.0, 1.0);
    for (const LinkObservation& seen : observations) {
      if (seen.bytes == 0 || seen.time.count() <= 0) continue;
      const AllReduceShape shape = start.ShapeOf(seen.bytes);
      const double by_latency = shape.rounds * latency;
      const double predicted = by_latency + shape.line_bytes * per_byte;
      if (predicted <= 0) continue;
      const double share = by_latency / predicted;
      const double error = std::log(Seconds(seen.time) / predicted);
      const bool is_far = std::abs(error) > kOutlier && i > kIterations / 2;
      const double weight = is_far ? kOutlier / std::abs(error) : 1;
      xx += weight * share * share;
      xy += weight * share * (1 - share);
      yy += weight * (1 - share) * (1 - share);
      x1 += weight * share * error;
      y1 += weight * (1 - share) * error;
    }
    const double determinant = xx * yy - xy * xy;
    const double x = (x1 * yy - y1 * xy) / determinant;
    const double y = (y1 * xx - x1 * xy) / determinant;
    latency *= std::exp(std::clamp(x, -kLongestStep, kLongestStep));
    per_byte *= std::exp(std::clamp(y, -kLongestStep, kLongestStep));
    latency = std::clamp(latency, kLeastLatency, kMostLatency);
    per_byte = std::clamp(per_byte, kLeastSecondsPerByte, kMostSecondsPerByte);
  }
  LinkModel fitted = start;
  fitted.latency = std::chrono::nanoseconds(static_cast<std::int64_t>(latency * 1e9));
  fitted.bytes_per_second = 1 / per_byte;
  return fitted;
}

std::vector<LinkObservation> MergeObservations(
    const std::vector<std::vector<LinkObservation>>& by_node) {
  const auto time_per_byte = [](const LinkObservation& seen) {
    return static_cast<double>(seen.time.count()) / static_cast<double>(seen.bytes);
  };
  std::map<int, LinkObservation> classes;
  for (const std::vector<LinkObservation>& observations : by_node) {
    for (const LinkObservation& seen : observations) {
      if (seen.bytes == 0 || seen.time.count() <= 0) continue;
      const auto [entry, added] = classes.try_emplace(std::bit_width(seen.bytes), seen);
      if (!added && time_per_byte(seen) < time_per_byte(entry->second)) entry->second = seen;
    }
  }
  std::vector<LinkObservation> merged;
  for (const auto& [size_class, seen] : classes) merged.push_back(seen);
  return merged;
}

}  // namespace ringd
