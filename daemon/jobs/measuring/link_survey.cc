#include "daemon/jobs/measuring/link_survey.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/text.h"

namespace ringd {

LinkSurvey::LinkSurvey(std::vector<StreamId> nodes)
    : nodes_(std::move(nodes)),
      reported_(nodes_.size(), false),
      missing_(nodes_.size()),
      links_(nodes_.size()) {}

absl::Status LinkSurvey::Add(StreamId node, const v1::LinkReport& report) {
  const auto found = std::find(nodes_.begin(), nodes_.end(), node);
  const auto from = static_cast<std::size_t>(found - nodes_.begin());
  if (found == nodes_.end() || reported_[from]) {
    return absl::InvalidArgumentError("a report of links that nobody asked for");
  }
  if (!report.error().empty()) return absl::UnavailableError(CutToLength(report.error(), 512));
  std::vector<bool> seen(nodes_.size(), false);
  for (const v1::ProbedLink& probed : report.links()) {
    const std::size_t to = probed.node();
    const auto link = CheckedLink(probed.latency_us(), probed.bytes_per_second());
    if (to >= nodes_.size() || to == from || seen[to] || !link.has_value()) {
      return absl::InvalidArgumentError("a report of links that makes no sense");
    }
    seen[to] = true;
    links_.at(from, to) = *link;
  }
  if (static_cast<std::size_t>(report.links_size()) + 1 != nodes_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a report of ", report.links_size(), " links, not ", nodes_.size() - 1));
  }
  reported_[from] = true;
  --missing_;
  return absl::OkStatus();
}

}  // namespace ringd
