#include "daemon/jobs/tracing/clock_offset.h"

#include <algorithm>

namespace ringd {
namespace {

// Two clocks that nobody corrects drift apart by less than so many nanoseconds in one second.
constexpr std::uint64_t kDriftPerSecond = 100'000;
constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr std::uint64_t kFresh = 5 * kSecond;

}  // namespace

void ClockOffset::Add(std::uint64_t sent_ns, std::uint64_t coordinator_ns,
                      std::uint64_t received_ns) noexcept {
  if (received_ns < sent_ns || received_ns == 0) return;
  const std::uint64_t half = (received_ns - sent_ns + 1) / 2;
  // In unsigned arithmetic, which may wrap; the difference is what counts.
  const auto offset = static_cast<std::int64_t>(coordinator_ns - (sent_ns + half));
  pings_[next_] = {received_ns, offset, half};
  next_ = (next_ + 1) % pings_.size();
}

std::optional<ClockOffset::Estimate> ClockOffset::Best(std::uint64_t now_ns) const noexcept {
  std::optional<Estimate> best;
  for (const Ping& ping : pings_) {
    if (ping.received_ns == 0) continue;
    const std::uint64_t age = now_ns - std::min(now_ns, ping.received_ns);
    const std::uint64_t uncertainty = ping.uncertainty_ns + age / kSecond * kDriftPerSecond +
                                      age % kSecond * kDriftPerSecond / kSecond;
    if (!best.has_value() || uncertainty < best->uncertainty_ns) {
      best = {ping.offset_ns, uncertainty};
    }
  }
  return best;
}

bool ClockOffset::WantsMore(std::uint64_t now_ns) const noexcept {
  const auto fresh = std::count_if(pings_.begin(), pings_.end(), [now_ns](const Ping& ping) {
    return ping.received_ns != 0 && now_ns - std::min(now_ns, ping.received_ns) < kFresh;
  });
  return static_cast<std::size_t>(fresh) < kPings;
}

}  // namespace ringd
