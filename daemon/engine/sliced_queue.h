// Work of the engine for calls whose size the caller chooses: done a bit at a time.
#ifndef RINGD_DAEMON_ENGINE_SLICED_QUEUE_H_
#define RINGD_DAEMON_ENGINE_SLICED_QUEUE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "proto/base/clock.h"

namespace ringd {

// One call's work. An entry is what takes the engine about a microsecond: a tensor is numbered, a
// rank is described, some events of a trace are read.
class SlicedWork {
 public:
  virtual ~SlicedWork() = default;
  // Does about `budget` entries, more only where one step can't be divided. Returns how many it
  // were, at least one.
  virtual std::size_t Step(std::size_t budget) = 0;
  // True when nothing is left to do, and the call is answered.
  virtual bool done() const = 0;
  // Answers the call with `why`, if that has not been done.
  virtual void Abandon(const absl::Status& why) = 0;
};

// Callers wait in flows: one work of a flow is under way at a time, and flows take turns.
//
// Thread safety: none; the progress thread owns it.
// Ownership: shared with the calls. What is done is handed to `dispose`, so that nothing large is
//   freed here.
// Invariant: Run takes no more than its budget, and what one Step can't divide.
class SlicedQueue {
 public:
  using Dispose = std::function<void(std::shared_ptr<SlicedWork>)>;
  struct Flow {
    std::uint64_t number = 0;
    // How long the flow rests after each entry: what keeps callers who never end from more than a
    // share of the engine.
    std::chrono::nanoseconds rest_per_entry{0};
  };
  // Entries of one flow before the next one's turn.
  static constexpr std::size_t kQuantum = 16;
  // A flow whose rest is over, and that is not run at once, makes up for so much of it: an engine
  // with nothing else to do sleeps a millisecond at least.
  static constexpr std::chrono::milliseconds kCatchUp{1};

  explicit SlicedQueue(Dispose dispose) : dispose_(std::move(dispose)) {}

  void Add(const Flow& flow, std::shared_ptr<SlicedWork> work);

  // Does about `budget` entries of what may run at `now`. Returns how many it were.
  std::size_t Run(std::size_t budget, Clock::time_point now);

  // When there is something to run; nothing: never, as it stands.
  std::optional<Clock::time_point> NextRun() const;

  void AbandonAll(const absl::Status& why);

 private:
  struct Waiting {
    Flow flow;
    Clock::time_point not_before;                   // the epoch: it has not run yet
    std::deque<std::shared_ptr<SlicedWork>> works;  // may be empty while the flow rests
  };
  using Flows = std::list<Waiting>;

  Dispose dispose_;
  Flows flows_;  // whose turn is next first
};

}  // namespace ringd

#endif  // RINGD_DAEMON_ENGINE_SLICED_QUEUE_H_
