#include "daemon/engine/sliced_queue.h"

#include <algorithm>
#include <utility>

namespace ringd {

void SlicedQueue::Add(const Flow& flow, std::shared_ptr<SlicedWork> work) {
  const auto found = std::find_if(flows_.begin(), flows_.end(), [&](const Waiting& waiting) {
    return waiting.flow.number == flow.number;
  });
  Waiting& waiting =
      found != flows_.end() ? *found : flows_.emplace_back(Waiting{flow, Clock::time_point(), {}});
  waiting.works.push_back(std::move(work));
}

std::size_t SlicedQueue::Run(std::size_t budget, Clock::time_point now) {
  // A flow that rests is forgotten only when it has rested.
  flows_.remove_if(
      [now](const Waiting& flow) { return flow.works.empty() && flow.not_before <= now; });
  std::size_t done = 0;
  std::size_t idle_lanes = 0;
  while (done < budget && idle_lanes < flows_.size()) {
    Waiting& flow = flows_.front();
    if (flow.works.empty() || flow.not_before > now) {
      ++idle_lanes;
    } else {
      idle_lanes = 0;
      SlicedWork& work = *flow.works.front();
      const std::size_t entries = work.Step(std::min(kQuantum, budget - done));
      done += entries;
      const bool fresh = flow.not_before == Clock::time_point();
      const Clock::time_point due = fresh ? now : std::max(flow.not_before, now - kCatchUp);
      flow.not_before = due + flow.flow.rest_per_entry * entries;
      if (work.done()) {
        dispose_(std::move(flow.works.front()));
        flow.works.pop_front();
      }
    }
    flows_.splice(flows_.end(), flows_, flows_.begin());
  }
  return done;
}

std::optional<Clock::time_point> SlicedQueue::NextRun() const {
  std::optional<Clock::time_point> next;
  for (const Waiting& flow : flows_) {
    if (flow.works.empty()) continue;
    if (!next.has_value() || flow.not_before < *next) next = flow.not_before;
  }
  return next;
}

void SlicedQueue::AbandonAll(const absl::Status& why) {
  for (Waiting& flow : flows_) {
    for (std::shared_ptr<SlicedWork>& work : flow.works) {
      work->Abandon(why);
      dispose_(std::move(work));
    }
  }
  flows_.clear();
}

}  // namespace ringd
