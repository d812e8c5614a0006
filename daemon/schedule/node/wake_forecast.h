// Foresees when the last tensors before a wait are going to be submitted.
//
// While a trainer computes, ringd sleeps; so the last bucket of a step, on which the step's end depends,
// would begin with waking up. But a step is like the ones before. A *run* is what is submitted without a wait
// in between: the gradients of a backward pass, a metric. From each tensor on it is learned how long it still takes
// until the run's last one, and how far that strays; so the later in the run, the surer is the forecast, and a
// slow step moves it along. Around the expected time somebody shall be awake: that is a *vigil*.
//
// Thread safety: none. Never blocks, reads no clock; a constant amount of work per tensor, and another at a
// run's end.
// Invariants:
//   1. Without submissions there is at most one vigil to come: nothing wakes an idle node again and again.
//   2. After vigils in which nothing came, the next runs go without, for longer each time.
#ifndef RINGD_DAEMON_SCHEDULE_NODE_WAKE_FORECAST_H_
#define RINGD_DAEMON_SCHEDULE_NODE_WAKE_FORECAST_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "daemon/schedule/protocol/schedule_time.h"

namespace ringd {

// From when to when to be awake.
struct Vigil {
  TimePoint begin;
  TimePoint end;

  friend bool operator==(const Vigil&, const Vigil&) = default;
};

class WakeForecast {
 public:
  // Runs from whose course a tensor's forecast follows at the earliest.
  static constexpr std::int32_t kNeeded = 4;
  // A vigil begins so much earlier than seems necessary: waking up takes its time.
  static constexpr std::chrono::nanoseconds kLead = std::chrono::microseconds(80);
  static constexpr std::chrono::nanoseconds kTail = std::chrono::microseconds(40);

  struct Counters {
    std::uint64_t foreseen = 0;  // runs with a vigil whose time came
    std::uint64_t kept = 0;      // of those, with one that was kept
    std::uint64_t rewarded = 0;  // of those, whose last tensor came in it
  };

  // All local ranks have submitted the tensor numbered `tensor`, which is an index: small and used again.
  // `follows_wait`: a rank had waited for an earlier one before. `learned`: it is part of the schedule; there is
  // no forecast from others.
  void OnReady(std::size_t tensor, bool learned, bool follows_wait, TimePoint now);
  // The number belongs to nobody or to another tensor from now on.
  void Forget(std::size_t tensor);

  // The vigil to come, or one that has begun and is not kept; nullopt: none.
  const std::optional<Vigil>& next() const noexcept { return next_; }
  // Its time has come: somebody is awake from now on, or it is left out.
  void Keep() noexcept;
  void LeaveOut() noexcept;

  const Counters& counters() const noexcept { return counters_; }

 private:
  // How long it takes from a tensor to the end of its run.
  struct Remaining {
    std::chrono::nanoseconds mean{0};
    std::chrono::nanoseconds error{0};  // mean absolute
    std::int32_t count = 0;

    void Add(std::chrono::nanoseconds sample) noexcept;
  };
  struct Arrival {
    std::size_t tensor;
    TimePoint at;
  };

  bool IsInRun(std::size_t tensor) const;
  void EndRun();
  void CountForeseen() noexcept;
  void Judge(TimePoint run_end) noexcept;

  std::vector<Remaining> remaining_;   // by tensor
  std::vector<std::uint64_t> run_of_;  // by tensor: in which run it came last
  std::vector<Arrival> run_;           // the present one's
  std::uint64_t run_number_ = 1;
  std::optional<Vigil> next_;
  std::optional<Vigil> kept_;  // the last one in this run
  bool foreseen_ = false;      // this run's end was
  int unrewarded_ = 0;         // in a row
  int runs_without_ = 0;       // still to come
  Counters counters_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SCHEDULE_NODE_WAKE_FORECAST_H_
