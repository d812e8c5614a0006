#include "backends/ucx/stream_watch.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ringd {
namespace {

// A look at all descriptors takes tens of microseconds. Where it finds nothing, as when another
// thread wrote at the same time or there was no room to write, the next is later.
constexpr Clock::duration kFirstSeekPause = std::chrono::milliseconds(1);
constexpr Clock::duration kLongestSeekPause = std::chrono::seconds(10);

// Bulk does not wait all the time, if a stream has nothing to send for a fifth of it.
constexpr int kStarvedPart = 5;

}  // namespace

std::optional<WrittenConnection> StreamWatch::BeginWrite(std::size_t stream) {
  if (sockets_.size() <= stream) sockets_.resize(stream + 1);
  if (sockets_[stream].known()) return std::nullopt;
  if (const Clock::time_point now = Clock::now(); now < seek_at_) return std::nullopt;
  return std::make_optional<WrittenConnection>();
}

void StreamWatch::EndWrite(std::size_t stream, const std::optional<WrittenConnection>& look) {
  if (!look.has_value()) return;
  sockets_[stream] = look->Find(kTellingBytes / 2);
  const bool found = sockets_[stream].known();
  seek_pause_ = found ? Clock::duration::zero()
                      : std::clamp(2 * seek_pause_, kFirstSeekPause, kLongestSeekPause);
  seek_at_ = Clock::now() + seek_pause_;
}

std::optional<StreamLook> StreamWatch::ReadCounters(const Bulk& bulk) noexcept {
  StreamLook look;
  std::size_t all_sent = 0;
  std::size_t congestion_limited = 0;
  look.least_round_trip = Clock::duration::max();
  for (std::size_t stream = bulk.first; stream < bulk.first + bulk.count; ++stream) {
    if (stream >= sockets_.size() || !sockets_[stream].known()) return std::nullopt;
    const auto counters = ReadTcpCounters(sockets_[stream]);
    if (!counters) {
      // UCX has closed it: two that both nodes opened at the same time became one.
      sockets_[stream] = {};
      return std::nullopt;
    }
    look.acked_bytes += counters->acked_bytes;
    look.busy += counters->busy;
    look.window_limited += counters->window_limited;
    look.round_trip += counters->round_trip / static_cast<int>(bulk.count);
    look.least_round_trip = std::min(look.least_round_trip, counters->least_round_trip);
    if (counters->all_sent) ++all_sent;
    if (counters->congestion_limited) ++congestion_limited;
  }
  look.buffer_limited = 2 * all_sent > bulk.count;
  look.congestion_limited = 2 * congestion_limited > bulk.count;
  look.shared = bulk.shared;
  return look;
}

bool StreamWatch::Look(Clock::time_point now, const Bulk& bulk) noexcept {
  if (!std::exchange(any_bulk_, false)) return false;
  // Acknowledgements come in bursts: what is refilled within a few turns is no lack of bulk.
  const Clock::duration passed = now - std::exchange(last_look_, now);
  const bool starved = kStarvedPart * std::exchange(idle_, {}) > passed;
  auto look = ReadCounters(bulk);
  if (!look) {
    tuner_.Pause();
    return false;
  }
  look->starved = starved;
  return tuner_.Look(now, *look);
}

std::string StreamWatch::Reason() const {
  if (tuner_.connections() != tuner_.settled_connections()) {
    return absl::StrCat("being tried, in place of ", tuner_.settled_connections());
  }
  const StreamVerdict& verdict = tuner_.verdict();
  return verdict.before == 0 ? "nothing speaks for more" : DescribeVerdict(verdict);
}

std::string StreamWatch::DescribeTrial() const {
  const StreamVerdict& verdict = tuner_.verdict();
  return absl::StrCat(verdict.kept ? "takes " : "does not take ", verdict.tried,
                      verdict.tried == 1 ? " connection" : " connections",
                      " for bulk: ", DescribeVerdict(verdict));
}

}  // namespace ringd
