#include "daemon/jobs/measuring/trial_survey.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/peers/measurement_conversion.h"
#include "proto/base/median.h"
#include "proto/base/text.h"

namespace ringd {

TrialSurvey::TrialSurvey(std::vector<StreamId> nodes) : nodes_(std::move(nodes)) {}

absl::Status TrialSurvey::Add(StreamId node, const v1::TrialReport& report) {
  const auto has = [node](const std::vector<StreamId>& streams) {
    return std::find(streams.begin(), streams.end(), node) != streams.end();
  };
  if (!has(nodes_) || has(reported_)) {
    return absl::InvalidArgumentError("a report of all-reduces that nobody asked for");
  }
  if (!report.error().empty()) return absl::UnavailableError(CutToLength(report.error(), 512));
  absl::StatusOr<std::vector<AllReduceTimes>> times = FromProto(report.times());
  if (!times.ok()) return times.status();
  if (!reports_.empty() && times->size() != reports_.front().size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a report of ", times->size(), " sizes, others of ", reports_.front().size()));
  }
  reported_.push_back(node);
  reports_.push_back(*std::move(times));
  return absl::OkStatus();
}

std::vector<AllReduceTimes> TrialSurvey::Times() const {
  const auto median = [this](std::size_t size, std::chrono::nanoseconds AllReduceTimes::*time) {
    std::vector<std::chrono::nanoseconds> times;
    for (const auto& report : reports_) times.push_back(report[size].*time);
    return MedianOf(times);
  };
  std::vector<AllReduceTimes> result;
  for (std::size_t size = 0; size < reports_.front().size(); ++size) {
    result.push_back({reports_.front()[size].bytes, median(size, &AllReduceTimes::flat),
                      median(size, &AllReduceTimes::doubling)});
  }
  return result;
}

}  // namespace ringd
