// What JobCoordinator's measurements before the start have in common.
#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/jobs/coordinator/job_coordinator.h"

namespace ringd {
namespace {

// The longest that one measurement may hold up a job; what is late is not used.
constexpr std::chrono::nanoseconds kPatience = std::chrono::milliseconds(500);

}  // namespace

std::int64_t JobCoordinator::UnixSeconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::vector<std::string> JobCoordinator::NamesOf(const std::vector<Node*>& nodes) {
  std::vector<std::string> names;
  for (const Node* node : nodes) names.push_back(node->name);
  return names;
}

bool JobCoordinator::AreDistinct(const std::vector<std::string>& names) {
  return std::set<std::string>(names.begin(), names.end()).size() == names.size();
}

std::vector<JobCoordinator::Node*> JobCoordinator::NodesOf(const std::vector<LinkId>& links) {
  std::vector<Node*> nodes;
  for (const LinkId link : links) nodes.push_back(&nodes_.at(link));
  return nodes;
}

bool JobCoordinator::MayMeasure(const std::vector<std::string>& names,
                                Clock::time_point now) const {
  // Nodes that have waited long give up soon.
  if (now + kPatience > start_deadline_) return false;
  return options_.plans == nullptr || options_.plans->IsWorthMeasuring(names, UnixSeconds());
}

void JobCoordinator::BeginMeasuring(Clock::time_point now) {
  state_ = State::kMeasuring;
  measuring_began_ = now;
  measuring_deadline_ = now + kPatience;
  TellWhoIsMissing(now);  // nobody any more
}

std::vector<LinkId> JobCoordinator::AskToMeasure(const std::vector<Node*>& order,
                                                 std::uint64_t wire_id,
                                                 v1::CoordinatorMessage& message,
                                                 v1::ProbedNodes& probed) {
  probed.set_wire_id(wire_id);
  std::vector<LinkId> links;
  for (const Node* node : order) {
    probed.add_node_names(node->name);
    probed.add_transport_addresses(node->transport_address);
    links.push_back(std::find_if(nodes_.begin(), nodes_.end(), [node](const auto& entry) {
                      return &entry.second == node;
                    })->first);
  }
  for (std::size_t i = 0; i < links.size(); ++i) {
    probed.set_node_index(static_cast<int>(i));
    sender_->SendToNode(links[i], message);
  }
  return links;
}

absl::Status JobCoordinator::ReportedBy(LinkId link, const absl::Status& status) const {
  return absl::Status(status.code(),
                      absl::StrCat("ringd on ", nodes_.at(link).name, ": ", status.message()));
}

void JobCoordinator::LogMeasured(absl::string_view what, std::size_t node_count) const {
  LogDebug(absl::StrCat(
               "measuring ", what, " ", node_count, " nodes took ",
               std::chrono::duration<double, std::milli>(Clock::now() - measuring_began_).count(),
               " ms"),
           Fields());
}

void JobCoordinator::EndLateMeasuring(Clock::time_point now) {
  if (state_ != State::kMeasuring || now < measuring_deadline_) return;
  const absl::Status late = absl::DeadlineExceededError("not all nodes were done in time");
  if (survey_ != nullptr) {
    EndSurvey(late, now);
  } else {
    EndTrial(late);
  }
}

}  // namespace ringd
