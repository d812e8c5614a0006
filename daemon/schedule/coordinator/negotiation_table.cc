#include "daemon/schedule/coordinator/negotiation_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ringd {

NegotiationTable::NegotiationTable(std::vector<std::string> node_names,
                                   std::optional<std::string> ordered)
    : node_names_(std::move(node_names)), ordered_(std::move(ordered)) {}

absl::StatusOr<NegotiationTable::Result> NegotiationTable::Announce(NodeIndex node,
                                                                    const ReadyTensor& tensor,
                                                                    TimePoint now) {
  const auto index = static_cast<std::size_t>(node.value());
  if (tensor.reports.empty()) {
    return absl::InternalError(absl::StrCat("node ", node_names_[index], " announced tensor '",
                                            tensor.name, "' without a description"));
  }
  auto [position, is_new] = entries_.try_emplace(tensor.name);
  Entry& entry = position->second;
  if (is_new) {
    entry.since = now;
    entry.ready.resize(node_names_.size(), false);
    entry.agreed = {tensor.reports.front(), node_names_[index]};
  }
  if (entry.ready[index]) {
    return absl::InternalError(
        absl::StrCat("node ", node_names_[index], " announced tensor '", tensor.name, "' twice"));
  }
  entry.ready[index] = true;
  entry.follows_wait |= tensor.follows_wait;
  for (const RankMeta& report : tensor.reports) Note(node, report, entry);

  Result result;
  if (++entry.ready_count < node_names_.size()) return result;
  if (entry.deviating.empty()) {
    result.outcome = Outcome::kAgreed;
    result.meta = std::move(entry.agreed.report.meta);
    result.follows_wait = entry.follows_wait;
  } else {
    result.outcome = Outcome::kMismatch;
    entry.deviating.push_back(std::move(entry.agreed));
    result.error =
        ordered_.has_value()
            ? absl::StrCat(tensor.name, " of communicator '", *ordered_,
                           "':", DescribeDifferences(entry.deviating, /*with_kinds=*/true))
            : DescribeMismatch(tensor.name, entry.deviating);
  }
  entries_.erase(position);
  return result;
}

void NegotiationTable::Note(NodeIndex node, const RankMeta& report, Entry& entry) const {
  const std::string& node_name = node_names_[static_cast<std::size_t>(node.value())];
  if (report.meta != entry.agreed.report.meta) {
    entry.deviating.push_back({report, node_name});
  } else if (report.rank < entry.agreed.report.rank) {
    entry.agreed = {report, node_name};
  }
}

std::vector<StalledTensor> NegotiationTable::Stalled(TimePoint announced_before) const {
  std::vector<StalledTensor> stalled;
  for (const auto& [name, entry] : entries_) {
    if (entry.since >= announced_before) continue;
    StalledTensor tensor{name, entry.since, {}, {}};
    for (std::size_t i = 0; i < entry.ready.size(); ++i) {
      (entry.ready[i] ? tensor.ready : tensor.absent)
          .push_back(NodeIndex(static_cast<std::int32_t>(i)));
    }
    stalled.push_back(std::move(tensor));
  }
  std::sort(stalled.begin(), stalled.end(), [](const StalledTensor& a, const StalledTensor& b) {
    return a.since != b.since ? a.since < b.since : a.name < b.name;
  });
  return stalled;
}

}  // namespace ringd
