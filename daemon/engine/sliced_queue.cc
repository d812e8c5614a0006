#include "daemon/engine/sliced_queue.h"

#include <algorithm>
#include <utility>

namespace ringd {

void SlicedQueue::Add(const Lane& lane, std::shared_ptr<SlicedWork> work) {
  const auto found = std::find_if(lanes_.begin(), lanes_.end(), [&](const Waiting& waiting) {
    return waiting.lane.number == lane.number;
  });
  Waiting& waiting =
      found != lanes_.end() ? *found : lanes_.emplace_back(Waiting{lane, Clock::time_point(), {}});
  waiting.works.push_back(std::move(work));
}

std::size_t SlicedQueue::Run(std::size_t budget, Clock::time_point now) {
  // A lane that rests is forgotten only when it has rested.
  lanes_.remove_if(
      [now](const Waiting& lane) { return lane.works.empty() && lane.not_before <= now; });
  std::size_t done = 0;
  std::size_t idle_lanes = 0;
  while (done < budget && idle_lanes < lanes_.size()) {
    Waiting& lane = lanes_.front();
    if (lane.works.empty() || lane.not_before > now) {
      ++idle_lanes;
    } else {
      idle_lanes = 0;
      SlicedWork& work = *lane.works.front();
      const std::size_t entries = work.Step(std::min(kQuantum, budget - done));
      done += entries;
      const bool fresh = lane.not_before == Clock::time_point();
      const Clock::time_point due = fresh ? now : std::max(lane.not_before, now - kCatchUp);
      lane.not_before = due + lane.lane.rest_per_entry * entries;
      if (work.done()) {
        dispose_(std::move(lane.works.front()));
        lane.works.pop_front();
      }
    }
    lanes_.splice(lanes_.end(), lanes_, lanes_.begin());
  }
  return done;
}

std::optional<Clock::time_point> SlicedQueue::NextRun() const {
  std::optional<Clock::time_point> next;
  for (const Waiting& lane : lanes_) {
    if (lane.works.empty()) continue;
    if (!next.has_value() || lane.not_before < *next) next = lane.not_before;
  }
  return next;
}

void SlicedQueue::AbandonAll(const absl::Status& why) {
  for (Waiting& lane : lanes_) {
    for (std::shared_ptr<SlicedWork>& work : lane.works) {
      work->Abandon(why);
      dispose_(std::move(work));
    }
  }
  lanes_.clear();
}

}  // namespace ringd
