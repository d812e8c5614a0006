// How many connections carry the bulk to a neighbour: tried out where TCP says that one is a limit.
#ifndef RINGD_BACKENDS_UCX_STREAM_TUNER_H_
#define RINGD_BACKENDS_UCX_STREAM_TUNER_H_

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "proto/base/clock.h"

namespace ringd {

// What TCP says of the connections that carry the bulk now, all together; counters since they began.
struct StreamLook {
  std::uint64_t acked_bytes = 0;
  Clock::duration busy{};            // had something to send
  Clock::duration window_limited{};  // of it: could not, for the receiver's window
  bool buffer_limited = false;       // now, all that fits into the send buffers is under way
  Clock::duration round_trip{};
  Clock::duration least_round_trip{};  // that there ever was
  bool congestion_limited = false;     // as much is under way as the congestion window allows
  // At some time since the last look a connection had room and nothing was waiting for it.
  bool starved = false;
  // Several jobs take turns.
  bool shared = false;
};

// How a trial ended. Rates are bytes a second, medians.
struct StreamVerdict {
  int before = 0;  // connections; 0: nothing has been tried
  int tried = 0;
  bool kept = false;
  double rate_before = 0;
  double rate_tried = 0;
  double rate_after = 0;  // with as many as before, again; 0: it was not needed to decide
};

// "2 connections carry 22.1 MB/s, 1 carries 11.3 MB/s".
std::string DescribeVerdict(const StreamVerdict& verdict);

// One connection carries what its windows allow in a round trip. Where that is less than the line,
// as over a long way, further connections help; where the line is full they cost: order gets lost,
// and buffers of several connections wait in the way of what is urgent.
//
// A window-limited connection is a reason to try one more, and no more than a reason: a connection
// also fills its buffers in front of a line that is full. Then round trips take longer than on the
// empty line, and the reason is taken for a weak one: trials are rare. A trial compares the bytes
// acknowledged a second before, with one more, and as before again, so that a line that gets faster
// meanwhile for other reasons is not taken for a success. Rarely it tries with one less, too.
//
// Only times count at which bulk was waiting all the time; in a trial also others that were fast
// enough nevertheless.
//
// Thread safety: none. Allocates nothing.
class StreamTuner {
 public:
  static constexpr int kMaxConnections = 8;
  // How often Look() is to be called while bulk is sent.
  static constexpr Clock::duration kLookInterval = std::chrono::milliseconds(10);

  // How many connections bulk is to be spread over; changes in Look() and Interrupt().
  int connections() const noexcept { return is_trying() ? candidate_ : settled_; }
  // The same without what is being tried.
  int settled_connections() const noexcept { return settled_; }

  // Takes note. When connections() has changed the next look is the first of others. True: a trial
  // has ended, see verdict().
  bool Look(Clock::time_point now, const StreamLook& look) noexcept;

  // Other connections carry the bulk from now on, or they can't be looked at: what is being measured
  // is worth nothing. A trial ends without a verdict.
  void Interrupt() noexcept;

  // In place of Look(), when one of the connections can't be looked at (yet).
  void Pause() noexcept;
  // A trial can't be carried out; another one will come later.
  void GiveUpTrial() noexcept;

  const StreamVerdict& verdict() const noexcept { return verdict_; }

 private:
  enum class Phase : std::uint8_t { kWatching, kTrying, kReturning };

  // Some stretch of time, long enough to tell a rate.
  struct Window {
    Clock::duration length{};
    std::uint64_t acked_bytes = 0;
    Clock::duration busy{};
    Clock::duration window_limited{};
    int looks = 0;
    int buffer_limited = 0;
    int congestion_limited = 0;
    int queueing = 0;

    double rate() const noexcept;
  };
  // What the last windows had in common.
  struct Sample {
    double rate = 0;
    bool limited = false;
    bool congestion_limited = false;
    bool queueing = false;
  };
  static constexpr std::size_t kSamples = 7;

  bool is_trying() const noexcept { return phase_ == Phase::kTrying; }
  void Enter(Phase phase, Clock::time_point now) noexcept;
  // The end of a stretch at which bulk was waiting all the time.
  bool OnWindow(Clock::time_point now, bool shared) noexcept;
  void OnLooseWindow() noexcept;
  void AddSample(const Window& window) noexcept;
  // That of the samples of this phase that `rank` others are below. 0: there are not so many.
  double RateOfRank(std::size_t rank) const noexcept;
  double MedianRate() const noexcept { return RateOfRank(samples_kept() / 2); }
  std::size_t samples_kept() const noexcept { return std::min(sample_count_, kSamples); }
  int CountSamples(bool Sample::*property) const noexcept;

  // How many are worth a trial; as many as there are: none.
  int ChooseCandidate(bool shared) const noexcept;
  // What a trial has to reach, relative to what was before.
  double RequiredRatio() const noexcept;
  // The trial was clearly faster than a median of this, with all samples but one below `high`.
  bool IsBetterThan(double rate, double high) const noexcept;
  bool GoOnTrying(Clock::time_point now) noexcept;
  bool GoOnReturning(Clock::time_point now) noexcept;
  bool Decide(Clock::time_point now, bool kept, double rate_after) noexcept;

  int settled_ = 1;
  int candidate_ = 1;
  Phase phase_ = Phase::kWatching;
  bool have_last_ = false;
  Clock::time_point last_at_;
  StreamLook last_;
  bool shared_ = false;
  Clock::time_point settled_at_;  // connections that are new are at their speed
  Clock::time_point rest_until_;  // those that had nothing to send, too
  Clock::duration window_length_{};
  Window window_;         // of looks that were not starved
  Window loose_window_;   // of all
  int windows_seen_ = 0;  // in this phase
  int pauses_ = 0;        // in this phase
  std::array<Sample, kSamples> samples_{};
  std::size_t sample_count_ = 0;  // in this phase, also such as have been overwritten
  // Watched since the last trial of one more, and of one less; or since a change.
  Clock::duration waited_{};
  Clock::duration unreviewed_{};
  int refusals_ = 0;        // in a row: of one more
  int failed_reviews_ = 0;  // in a row: of one less
  double rate_before_ = 0;
  double high_before_ = 0;  // all samples but one were below
  double rate_tried_ = 0;
  double low_tried_ = 0;  // all samples but one were above
  StreamVerdict verdict_;
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_UCX_STREAM_TUNER_H_
