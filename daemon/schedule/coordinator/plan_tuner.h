// Turns what the nodes of a communicator measure into the link model its coordinator plans with,
// and decides when another plan is worth the change.
//
// A change costs a moment in which some tensors are negotiated, so it must promise something
// (Options::least_gain); and it comes at most every so often, ever more seldom. So does the search
// for one where there is none.
//
// Thread safety: none; one thread owns it, with the coordinator. Reads no clock.
#ifndef RINGD_DAEMON_SCHEDULE_COORDINATOR_PLAN_TUNER_H_
#define RINGD_DAEMON_SCHEDULE_COORDINATOR_PLAN_TUNER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "daemon/schedule/coordinator/coordinator.h"
#include "daemon/schedule/link/link_model.h"
#include "daemon/schedule/link/measurements.h"
#include "daemon/schedule/protocol/growing_pause.h"
#include "daemon/schedule/protocol/schedule_time.h"
#include "proto/types/ids.h"

namespace ringd {

// Where a link model's latency and bandwidth come from.
enum class LinkSource : std::uint8_t { kAssumed, kKept, kMeasured };
const char* Name(LinkSource source) noexcept;  // "assumed", "kept", "measured"

class PlanTuner {
 public:
  struct Options {
    bool may_replan = true;
    LeastGain least_gain;
    // Between two new plans: this long, then twice as long each time, up to the longest.
    std::chrono::nanoseconds first_pause = std::chrono::seconds(1);
    std::chrono::nanoseconds longest_pause = std::chrono::seconds(60);
    // Likewise after a search that has found none: it takes the engine milliseconds, and in a job
    // over many nodes there is always one that reports.
    std::chrono::nanoseconds first_search_pause = std::chrono::milliseconds(250);
    std::chrono::nanoseconds longest_search_pause = std::chrono::seconds(8);
  };

  PlanTuner(const Options& options, const LinkModel& start, LinkSource source,
            std::size_t node_count);

  // Requirement: `from` is one of the nodes.
  void OnMeasurements(NodeIndex from, NodeMeasurements measured);
  // Gives the coordinator what is new, and has it plan anew if that is worth it. True if anything
  // was new. Call Coordinator::Flush afterwards.
  bool Tune(Coordinator& coordinator, TimePoint now);

  const LinkModel& link() const noexcept { return link_; }
  LinkSource source() const noexcept { return source_; }
  // All-reduces behind the model's latency and bandwidth, as far as the nodes keep them.
  std::uint64_t samples() const noexcept;

 private:
  const Options options_;
  const LinkModel start_;
  LinkModel link_;
  LinkSource source_;
  std::vector<std::vector<LinkObservation>> observations_;                            // by node
  std::vector<bool> has_reported_;                                                    // by node
  std::unordered_map<std::string, std::vector<std::chrono::nanoseconds>> readiness_;  // by node
  bool dirty_ = false;
  GrowingPause replan_pause_;
  GrowingPause search_pause_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SCHEDULE_COORDINATOR_PLAN_TUNER_H_
