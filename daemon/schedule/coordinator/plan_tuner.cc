#include "daemon/schedule/coordinator/plan_tuner.h"

#include <algorithm>
#include <utility>

#include "daemon/schedule/link/link_fit.h"

namespace ringd {
namespace {

// Of tensors whose readiness is kept: more than a coordinator schedules of any sound job.
constexpr std::size_t kMaxTensors = 65'536;

}  // namespace

const char* Name(LinkSource source) noexcept {
  switch (source) {
    case LinkSource::kAssumed:
      return "assumed";
    case LinkSource::kKept:
      return "kept";
    case LinkSource::kMeasured:
      return "measured";
  }
  return "invalid";
}

PlanTuner::PlanTuner(const Options& options, const LinkModel& start, LinkSource source,
                     std::size_t node_count)
    : options_(options),
      start_(start),
      link_(start),
      source_(source),
      observations_(node_count),
      has_reported_(node_count, false),
      replan_pause_(options.first_pause, options.longest_pause),
      search_pause_(options.first_search_pause, options.longest_search_pause) {}

void PlanTuner::OnMeasurements(NodeIndex from, NodeMeasurements measured) {
  const auto node = static_cast<std::size_t>(from.value());
  has_reported_[node] = true;
  dirty_ = true;
  if (!measured.link.empty()) observations_[node] = std::move(measured.link);
  for (TensorReadiness& entry : measured.readiness) {
    if (readiness_.size() >= kMaxTensors && readiness_.count(entry.tensor) == 0) {
      readiness_.clear();  // names that never return; those that do are reported when they change
    }
    auto& offsets = readiness_[std::move(entry.tensor)];
    offsets.resize(has_reported_.size());
    offsets[node] = entry.offset;
  }
}

bool PlanTuner::Tune(Coordinator& coordinator, TimePoint now) {
  if (!std::exchange(dirty_, false)) return false;
  if (const auto merged = MergeObservations(observations_); !merged.empty()) {
    link_ = FitLink(merged, start_);
    source_ = LinkSource::kMeasured;
    coordinator.SetLinkModel(link_);
  }
  std::unordered_map<std::string, std::chrono::nanoseconds> slowest;
  for (const auto& [tensor, offsets] : readiness_) {
    slowest[tensor] = *std::max_element(offsets.begin(), offsets.end());
  }
  coordinator.SetReadiness(slowest);
  const bool all_have_reported =
      std::all_of(has_reported_.begin(), has_reported_.end(), [](bool has) { return has; });
  if (!options_.may_replan || !all_have_reported || !replan_pause_.IsOver(now) ||
      !search_pause_.IsOver(now)) {
    return true;
  }
  if (coordinator.ReplanIfBetter(options_.least_gain)) {
    replan_pause_.Begin(now);
    search_pause_.StartOver(now);
  } else {
    search_pause_.Begin(now);
  }
  return true;
}

std::uint64_t PlanTuner::samples() const noexcept {
  std::uint64_t count = 0;
  for (const auto& observations : observations_) {
    for (const LinkObservation& seen : observations) count += seen.samples;
  }
  return count;
}

}  // namespace ringd
