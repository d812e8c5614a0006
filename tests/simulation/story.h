// What happened in a simulated job besides its ordinary course, for whoever replays it.
#ifndef RINGD_TESTS_SIMULATION_STORY_H_
#define RINGD_TESTS_SIMULATION_STORY_H_

#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "tests/simulation/event_queue.h"

namespace ringd::simulation {

// Thread safety: none. Ownership: the events must outlive it.
class Story {
 public:
  explicit Story(const EventQueue& events) : events_(events) {}

  // Notes it with the time at which it happened: now.
  void Tell(const std::string& what) {
    const std::chrono::duration<double, std::milli> time = events_.now() - TimePoint();
    char stamp[32];
    std::snprintf(stamp, sizeof(stamp), "%12.3f ms  ", time.count());
    lines_.push_back(stamp + what);
  }
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  const EventQueue& events_;
  std::vector<std::string> lines_;
};

}  // namespace ringd::simulation

#endif  // RINGD_TESTS_SIMULATION_STORY_H_
