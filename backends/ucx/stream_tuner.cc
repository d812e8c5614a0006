#include "backends/ucx/stream_tuner.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"

namespace ringd {
namespace {

using std::chrono::duration;
using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

// A rate is that of at least so long, and of at least two round trips.
constexpr Clock::duration kWindow = milliseconds(50);
// What passes until a connection that had nothing to send is at its speed again...
constexpr Clock::duration kWarmUp = milliseconds(10);
constexpr int kWarmUpRoundTrips = 2;
// ... and until one that is used for the first time is.
constexpr Clock::duration kSettling = milliseconds(100);
constexpr int kSettlingRoundTrips = 8;
// Windows looked at until the rates before and after a trial are known to be the same.
constexpr std::size_t kReturnSamples = 5;
// A trial in which bulk seldom waits long enough for a window is given up after so many.
constexpr int kMostWindows = 25;
// The same if its connections can't be looked at: five seconds.
constexpr int kMostPauses = 500;

// The share of its busy time for which a connection is limited by windows, for that to be the reason.
constexpr double kLimitedShare = 0.5;
// Round trips so much longer than on the empty line are those of a queue.
constexpr int kQueueingRatio = 2;
constexpr Clock::duration kQueueingSlack = microseconds(100);

// One more has to bring this, or half of what it would bring at best.
constexpr double kGain = 0.15;
// A trial that falls behind so far is over.
constexpr double kHopeless = 0.9;

// How long a reason has to last for the first trial, and after that many refusals.
constexpr Clock::duration kFirstWait = milliseconds(500);
constexpr Clock::duration kWaitAfterRefusal = seconds(30);
constexpr Clock::duration kWeakReasonWait = seconds(60);
constexpr Clock::duration kReviewWait = minutes(10);
constexpr Clock::duration kLongestWait = hours(1);

Clock::duration Doubled(Clock::duration wait, int times) noexcept {
  for (; times > 0 && wait < kLongestWait; --times) wait *= 2;
  return std::min(wait, kLongestWait);
}

double Seconds(Clock::duration time) noexcept { return duration<double>(time).count(); }

}  // namespace

std::string DescribeVerdict(const StreamVerdict& verdict) {
  const auto carry = [](int connections, double rate) {
    return absl::StrFormat("%d %s %.1f MB/s", connections,
                           connections == 1 ? "connection carries" : "connections carry",
                           rate / 1e6);
  };
  return carry(verdict.tried, verdict.rate_tried) + ", " +
         carry(verdict.before, std::max(verdict.rate_before, verdict.rate_after));
}

double StreamTuner::Window::rate() const noexcept {
  return length > Clock::duration::zero() ? static_cast<double>(acked_bytes) / Seconds(length) : 0;
}

bool StreamTuner::Look(Clock::time_point now, const StreamLook& look) noexcept {
  if (std::exchange(shared_, look.shared) != look.shared) Interrupt();
  if (!have_last_ || look.acked_bytes < last_.acked_bytes) {
    have_last_ = true;
    last_at_ = now;
    last_ = look;
    rest_until_ = std::max(rest_until_, now + kWarmUp);
    return false;
  }
  const Window interval{
      .length = now - last_at_,
      .acked_bytes = look.acked_bytes - last_.acked_bytes,
      .busy = look.busy - last_.busy,
      .window_limited = look.window_limited - last_.window_limited,
      .looks = 1,
      .buffer_limited = look.buffer_limited ? 1 : 0,
      .congestion_limited = look.congestion_limited ? 1 : 0,
      .queueing =
          look.round_trip > kQueueingRatio * look.least_round_trip + kQueueingSlack ? 1 : 0};
  const Clock::time_point began = last_at_;
  last_at_ = now;
  last_ = look;
  window_length_ = std::max(kWindow, 2 * look.round_trip);
  const auto add = [&interval](Window& window) {
    window.length += interval.length;
    window.acked_bytes += interval.acked_bytes;
    window.busy += interval.busy;
    window.window_limited += interval.window_limited;
    window.looks += interval.looks;
    window.buffer_limited += interval.buffer_limited;
    window.congestion_limited += interval.congestion_limited;
    window.queueing += interval.queueing;
  };
  if (is_trying() && began >= settled_at_) add(loose_window_);
  if (look.starved) {
    rest_until_ = now + std::max(kWarmUp, kWarmUpRoundTrips * look.round_trip);
  } else if (began >= std::max(settled_at_, rest_until_)) {
    add(window_);
    if (window_.length >= window_length_) return OnWindow(now, look.shared);
  }
  if (loose_window_.length < window_length_) return false;
  OnLooseWindow();
  return is_trying() && GoOnTrying(now);
}

void StreamTuner::Interrupt() noexcept {
  phase_ = Phase::kWatching;
  have_last_ = false;
  window_ = {};
  loose_window_ = {};
  sample_count_ = 0;
  windows_seen_ = 0;
  pauses_ = 0;
}

void StreamTuner::Pause() noexcept {
  have_last_ = false;
  window_ = {};
  loose_window_ = {};
  if (is_trying() && ++pauses_ >= kMostPauses) GiveUpTrial();
}

void StreamTuner::GiveUpTrial() noexcept {
  ++refusals_;
  waited_ = {};
  Interrupt();
}

void StreamTuner::Enter(Phase phase, Clock::time_point now) noexcept {
  Interrupt();  // others are being looked at
  phase_ = phase;
  settled_at_ = now + std::max(kSettling, kSettlingRoundTrips * last_.round_trip);
}

bool StreamTuner::OnWindow(Clock::time_point now, bool shared) noexcept {
  const Clock::duration length = window_.length;
  AddSample(window_);
  window_ = {};
  loose_window_ = {};
  ++windows_seen_;
  switch (phase_) {
    case Phase::kTrying:
      return GoOnTrying(now);
    case Phase::kReturning:
      return GoOnReturning(now);
    case Phase::kWatching:
      break;
  }
  waited_ += length;
  unreviewed_ += length;
  if (sample_count_ < kSamples) return false;
  candidate_ = ChooseCandidate(shared);
  if (candidate_ == settled_) return false;
  rate_before_ = MedianRate();
  high_before_ = RateOfRank(kSamples - 2);
  Enter(Phase::kTrying, now);
  return false;
}

void StreamTuner::OnLooseWindow() noexcept {
  // The line could do at least this. If that is not enough, it says nothing: bulk did not wait.
  if (loose_window_.rate() >= RequiredRatio() * rate_before_) AddSample(loose_window_);
  loose_window_ = {};
  ++windows_seen_;
}

void StreamTuner::AddSample(const Window& window) noexcept {
  Sample& sample = samples_[sample_count_++ % kSamples];
  sample.rate = window.rate();
  // Of the one the kernel tells how long, the other is seen or not; they exclude each other.
  const double by_window = window.busy > Clock::duration::zero()
                               ? Seconds(window.window_limited) / Seconds(window.busy)
                               : 0;
  const double by_buffer = static_cast<double>(window.buffer_limited) / window.looks;
  sample.limited = by_window + by_buffer >= kLimitedShare;
  sample.congestion_limited = 2 * window.congestion_limited > window.looks;
  sample.queueing = 2 * window.queueing > window.looks;
}

double StreamTuner::RateOfRank(std::size_t rank) const noexcept {
  if (rank >= samples_kept()) return 0;
  std::array<double, kSamples> rates{};
  for (std::size_t i = 0; i < samples_kept(); ++i) rates[i] = samples_[i].rate;
  const auto of = [&rates](std::size_t i) {
    return rates.begin() + static_cast<std::ptrdiff_t>(i);
  };
  std::nth_element(rates.begin(), of(rank), of(samples_kept()));
  return rates[rank];
}

int StreamTuner::CountSamples(bool Sample::*property) const noexcept {
  return static_cast<int>(
      std::count_if(samples_.begin(), samples_.end(),
                    [property](const Sample& sample) { return sample.*property; }));
}

int StreamTuner::ChooseCandidate(bool shared) const noexcept {
  const auto most = [this](bool Sample::*property) {
    return 2 * CountSamples(property) > static_cast<int>(kSamples);
  };
  if (settled_ < kMaxConnections) {
    const bool limited = most(&Sample::limited);
    const bool queueing = most(&Sample::queueing);
    const Clock::duration wait =
        refusals_ == 0 ? kFirstWait : Doubled(kWaitAfterRefusal, refusals_ - 1);
    if (limited && !queueing && waited_ >= wait) return settled_ + 1;
    // What another connection keeps in a queue of the line, jobs that take turns would wait for.
    const bool weakly = limited || most(&Sample::congestion_limited);
    if (weakly && !shared && waited_ >= Doubled(kWeakReasonWait, refusals_)) return settled_ + 1;
  }
  if (settled_ > 1 && unreviewed_ >= Doubled(kReviewWait, failed_reviews_)) return settled_ - 1;
  return settled_;
}

double StreamTuner::RequiredRatio() const noexcept {
  return candidate_ < settled_ ? 1.0 : 1.0 + std::min(kGain, 0.5 / settled_);
}

bool StreamTuner::GoOnTrying(Clock::time_point now) noexcept {
  const double tried = MedianRate();
  const bool hopeless =
      sample_count_ == 2 && std::max(samples_[0].rate, samples_[1].rate) < kHopeless * rate_before_;
  if (!hopeless && sample_count_ < kSamples && windows_seen_ < kMostWindows) return false;
  rate_tried_ = tried;
  low_tried_ = RateOfRank(1);
  if (sample_count_ < kSamples || !IsBetterThan(rate_before_, high_before_)) {
    return Decide(now, false, 0);
  }
  Enter(Phase::kReturning, now);
  return false;
}

bool StreamTuner::GoOnReturning(Clock::time_point now) noexcept {
  if (sample_count_ < kReturnSamples) return false;
  const double after = MedianRate();
  return Decide(now, IsBetterThan(after, RateOfRank(kReturnSamples - 2)), after);
}

bool StreamTuner::IsBetterThan(double rate, double high) const noexcept {
  // Noise may lift a median that far, but seldom all.
  return rate_tried_ >= RequiredRatio() * rate && (candidate_ < settled_ || low_tried_ >= high);
}

bool StreamTuner::Decide(Clock::time_point now, bool kept, double rate_after) noexcept {
  verdict_ = {settled_, candidate_, kept, rate_before_, rate_tried_, rate_after};
  const bool upwards = candidate_ > settled_;
  if (kept || upwards) waited_ = {};
  if (kept || !upwards) unreviewed_ = {};
  if (kept) {
    settled_ = candidate_;
    failed_reviews_ = 0;
    // One less was enough: one more need not be tried again soon.
    refusals_ = upwards ? 0 : refusals_ + 1;
  } else {
    ++(upwards ? refusals_ : failed_reviews_);
  }
  Enter(Phase::kWatching, now);
  return true;
}

}  // namespace ringd
