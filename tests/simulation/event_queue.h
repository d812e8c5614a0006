// Virtual time: events run one after another, in order of their time.
#ifndef RINGD_TESTS_SIMULATION_EVENT_QUEUE_H_
#define RINGD_TESTS_SIMULATION_EVENT_QUEUE_H_

#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "daemon/schedule/protocol/schedule_time.h"

namespace ringd::simulation {

// Thread safety: none. Invariant: events of equal time run in the order in which they were added.
class EventQueue {
 public:
  TimePoint now() const { return now_; }

  void At(TimePoint time, std::function<void()> action) {
    events_.push({time < now_ ? now_ : time, next_++, std::move(action)});
  }
  void After(std::chrono::nanoseconds delay, std::function<void()> action) {
    At(now_ + delay, std::move(action));
  }

  // Runs the next event; false if there is none.
  bool RunOne() {
    if (events_.empty()) return false;
    // The queue gives const access only; the event is popped at once, so moving out is safe.
    Event event = std::move(const_cast<Event&>(events_.top()));
    events_.pop();
    now_ = event.time;
    event.action();
    return true;
  }

 private:
  struct Event {
    TimePoint time;
    std::uint64_t order;
    std::function<void()> action;
    bool operator<(const Event& other) const {
      return time != other.time ? time > other.time : order > other.order;
    }
  };

  TimePoint now_;
  std::uint64_t next_ = 0;
  std::priority_queue<Event> events_;
};

}  // namespace ringd::simulation

#endif  // RINGD_TESTS_SIMULATION_EVENT_QUEUE_H_
