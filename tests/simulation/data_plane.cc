#include "tests/simulation/data_plane.h"

#include <algorithm>
#include <utility>

namespace ringd::simulation {
namespace {

std::string Describe(int node, OperationId operation) {
  return "node " + std::to_string(node) + ", operation " + std::to_string(operation.channel) + "/" +
         std::to_string(operation.sequence);
}

}  // namespace

DataPlane::DataPlane(int node_count, Ledger& ledger,
                     std::function<void(OperationId)> on_started_everywhere)
    : node_count_(node_count),
      ledger_(ledger),
      on_started_everywhere_(std::move(on_started_everywhere)),
      launched_at_(static_cast<std::size_t>(node_count)) {}

void DataPlane::CheckLaunchOrder(int node, OperationId id) {
  std::size_t& count = launched_at_[static_cast<std::size_t>(node)];
  if (count == launches_.size()) launches_.push_back(id);
  if (launches_[count++] != id) {
    ledger_.Report(Describe(node, id) + ": launched where others have launched another one");
  }
}

void DataPlane::Start(int node, OperationId id, const std::vector<Contribution>& contributions) {
  Operation& operation = operations_[id];
  if (operation.started == 0) {
    operation.first = node;
    operation.contributions = contributions;
    for (Contribution& contribution : operation.contributions) contribution.sum = 0;
    operation.running.assign(static_cast<std::size_t>(node_count_), false);
    operation.begun = operation.running;
    operation.is_sent = id.channel != 0 || std::any_of(contributions.begin(), contributions.end(),
                                                       [](const Contribution& contribution) {
                                                         return ByteCount(contribution.meta) > 0;
                                                       });
    operation.is_launched = NeedsLaunch(contributions.front().meta);
  }
  if (operation.is_launched) CheckLaunchOrder(node, id);
  const auto index = static_cast<std::size_t>(node);
  if (operation.begun[index] || (operation.is_sent && operation.completed > 0)) {
    ledger_.Report(Describe(node, id) + ": started twice");
    return;
  }
  if (operation.cancelled) ledger_.Report(Describe(node, id) + ": started after a cancellation");
  bool same = contributions.size() == operation.contributions.size();
  bool alike = true;
  for (std::size_t i = 0; same && i < contributions.size(); ++i) {
    same = contributions[i].name == operation.contributions[i].name;
    alike = alike && contributions[i].meta == operation.contributions[i].meta;
    operation.contributions[i].sum += contributions[i].sum;
  }
  if (!same || (!alike && !on_difference_)) {
    ledger_.Report(Describe(node, id) + ": nodes started different tensors");
  }
  if (!alike && on_difference_) {
    operation.differs = true;
    on_difference_(id, operation.first, node);
  }
  operation.running[index] = true;
  operation.begun[index] = true;
  ++operation.started;
  if (operation.is_sent && operation.started == node_count_ && !operation.cancelled &&
      !operation.differs) {
    on_started_everywhere_(id);
  }
}

void DataPlane::Cancel(int node, OperationId id) {
  const auto found = operations_.find(id);
  if (!IsRunningAt(node, id)) {
    ledger_.Report(Describe(node, id) + ": cancelled although it is not running");
    return;
  }
  if (found->second.started == node_count_ && !found->second.differs) {
    ledger_.Report(Describe(node, id) + ": cancelled although all nodes have started it");
  }
  if (found->second.is_launched) {
    ledger_.Report(Describe(node, id) + ": cancelled although it was launched");
  }
  found->second.running[static_cast<std::size_t>(node)] = false;
  found->second.cancelled = true;
}

void DataPlane::GiveUp(int node, OperationId id) {
  Operation& operation = operations_.at(id);
  if (!operation.differs) ledger_.Report(Describe(node, id) + ": given up without need");
  operation.running[static_cast<std::size_t>(node)] = false;
}

std::vector<std::int64_t> DataPlane::Complete(int node, OperationId id) {
  Operation& operation = operations_[id];
  operation.running[static_cast<std::size_t>(node)] = false;
  if (operation.is_sent && operation.started != node_count_) {
    ledger_.Report(Describe(node, id) + ": completed before all nodes had started it");
  }
  if (operation.differs) ledger_.Report(Describe(node, id) + ": completed though nodes differ");
  std::vector<std::int64_t> sums;
  for (const Contribution& contribution : operation.contributions) sums.push_back(contribution.sum);
  if (++operation.completed == node_count_) operations_.erase(id);
  return sums;
}

bool DataPlane::IsRunningAt(int node, OperationId id) const {
  const auto found = operations_.find(id);
  return found != operations_.end() && found->second.running[static_cast<std::size_t>(node)];
}

void DataPlane::ReportLeftovers() {
  for (const auto& [id, operation] : operations_) {
    for (int node = 0; node < node_count_; ++node) {
      if (IsRunningAt(node, id)) ledger_.Report(Describe(node, id) + ": never ended");
    }
  }
}

}  // namespace ringd::simulation
