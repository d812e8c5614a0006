#include "backends/tcp/line_rate.h"

namespace ringd {

void LineRate::Note(const TcpAccount& sent, std::size_t connections) noexcept {
  const auto busy = static_cast<std::uint64_t>(sent.busy_time.count());
  if (busy == 0) return;
  const std::uint64_t bytes_per_second = sent.acked_bytes * connections * 1'000'000 / busy;
  if (bytes_per_second < kSlowBelow) is_slow_ = true;
  if (bytes_per_second >= kFastFrom) is_slow_ = false;
}

}  // namespace ringd
