// JobCoordinator's choice of the ring: in which order it passes through the nodes.
#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/jobs/job_coordinator.h"
#include "daemon/jobs/ring_order.h"
#include "daemon/schedule/ring_planner.h"

namespace ringd {
namespace {

// With fewer nodes all rings are alike. With more, measuring each pair takes long: a round for each
// node, of about 5 ms at 1 Gbit/s.
constexpr std::size_t kFewestMeasured = 4;
constexpr std::size_t kMostMeasured = 32;
// The longest that measuring may hold up a job; what is late is not used.
constexpr std::chrono::nanoseconds kSurveyPatience = std::chrono::milliseconds(500);

std::int64_t UnixSeconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

template <typename NodePointer>
std::vector<std::string> NamesOf(const std::vector<NodePointer>& nodes) {
  std::vector<std::string> names;
  for (const NodePointer node : nodes) names.push_back(node->name);
  return names;
}

}  // namespace

// `order`: by ranks.
void JobCoordinator::ChooseRing(std::vector<Node*> order, Clock::time_point now) {
  const std::vector<std::string> names = NamesOf(order);
  const bool fixed = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return std::count(options_.ring_order.begin(), options_.ring_order.end(), name) > 0;
  });
  if (fixed) {
    OrderRing(options_.ring_order, order);
    RingChoice choice;
    choice.source = RingSource::kSetting;
    Start(order, std::move(choice));
    return;
  }
  const bool distinct = std::set<std::string>(names.begin(), names.end()).size() == names.size();
  if (!options_.measure_links || !distinct || order.size() < kFewestMeasured) {
    Start(order, {});
    return;
  }
  const std::int64_t unix_seconds = UnixSeconds();
  if (options_.plans != nullptr) {
    if (const auto known = options_.plans->FindLinks(names, unix_seconds); known.has_value()) {
      FollowLinks(std::move(order), *known);
      return;
    }
  }
  if (MayMeasure(names, unix_seconds, now)) {
    BeginSurvey(order, now);
  } else {
    Start(order, {});
  }
}

bool JobCoordinator::MayMeasure(const std::vector<std::string>& names, std::int64_t unix_seconds,
                                Clock::time_point now) const {
  // Nodes that have waited long give up soon.
  if (names.size() > kMostMeasured || now + kSurveyPatience > start_deadline_) return false;
  return options_.plans == nullptr || options_.plans->IsWorthMeasuring(names, unix_seconds);
}

void JobCoordinator::BeginSurvey(const std::vector<Node*>& order, Clock::time_point now) {
  state_ = State::kMeasuring;
  survey_began_ = now;
  survey_deadline_ = now + kSurveyPatience;
  // As random as the job's, and another.
  AskForLinks(order, ~options_.wire_id);
}

void JobCoordinator::AskForLinks(const std::vector<Node*>& order, std::uint64_t wire_id) {
  v1::CoordinatorMessage message;
  v1::LinkProbe& probe = *message.mutable_link_probe();
  probe.set_wire_id(wire_id);
  std::vector<LinkId> streams;
  for (const Node* node : order) {
    probe.add_node_names(node->name);
    probe.add_transport_addresses(node->transport_address);
    streams.push_back(std::find_if(nodes_.begin(), nodes_.end(), [node](const auto& entry) {
                        return &entry.second == node;
                      })->first);
  }
  survey_ = std::make_unique<LinkSurvey>(streams);
  for (std::size_t i = 0; i < streams.size(); ++i) {
    probe.set_node_index(static_cast<int>(i));
    sender_->SendToNode(streams[i], message);
  }
}

void JobCoordinator::OnLinkReport(LinkId link, const v1::LinkReport& report) {
  // It may be late.
  if (state_ != State::kMeasuring) return;
  if (absl::Status status = survey_->Add(link, report); !status.ok()) {
    EndSurvey(absl::Status(
        status.code(), absl::StrCat("ringd on ", nodes_.at(link).name, ": ", status.message())));
  } else if (survey_->complete()) {
    EndSurvey(absl::OkStatus());
  }
}

// Nodes that are not done hear from Membership that it is over.
void JobCoordinator::EndSurvey(const absl::Status& outcome) {
  const std::unique_ptr<LinkSurvey> survey = std::move(survey_);
  std::vector<Node*> order;
  for (const LinkId link : survey->nodes()) order.push_back(&nodes_.at(link));
  const std::vector<std::string> names = NamesOf(order);
  if (!outcome.ok() && first_look_.empty()) {
    LogInfo(absl::StrCat("the ring keeps the order of ranks, since the links between the nodes "
                         "could not be measured: ",
                         outcome.message()),
            Fields());
    if (options_.plans != nullptr) options_.plans->NoteUnmeasured(names, UnixSeconds());
    Start(order, {});
    return;
  }
  KnownLinks known{first_look_, UnixSeconds()};
  const std::size_t chunk = options_.algorithms.chunk_bytes;
  if (!outcome.ok()) {
    LogDebug(absl::StrCat("links were measured only once: ", outcome.message()), Fields());
  } else if (!first_look_.empty()) {
    known.links = AgreedLinks(first_look_, survey->links(), chunk);
  } else {
    known.links = survey->links();
    const std::vector<std::size_t> ring = PlanRing(known.links, chunk);
    if (!std::is_sorted(ring.begin(), ring.end())) {
      // Another order than that of the ranks needs better reasons than one look.
      first_look_ = known.links;
      AskForLinks(order, ~options_.wire_id - 1);
      return;
    }
  }
  LogDebug(
      absl::StrCat("measuring the links between ", order.size(), " nodes took ",
                   std::chrono::duration<double, std::milli>(Clock::now() - survey_began_).count(),
                   " ms"),
      Fields());
  if (options_.plans != nullptr) {
    options_.plans->PutLinks(names, known.links, known.unix_seconds);
  }
  FollowLinks(std::move(order), known);
}

void JobCoordinator::FollowLinks(std::vector<Node*> order, const KnownLinks& known) {
  const std::vector<std::size_t> ring = PlanRing(known.links, options_.algorithms.chunk_bytes);
  std::vector<Node*> chosen;
  for (const std::size_t node : ring) chosen.push_back(order[node]);
  RingChoice choice;
  choice.source = chosen == order ? RingSource::kRanks : RingSource::kMeasured;
  choice.links = known.links.InOrder(ring);
  choice.measured_unix_seconds = known.unix_seconds;
  if (choice.source == RingSource::kMeasured) {
    LogInfo(
        absl::StrCat("the ring follows the measured links: ", absl::StrJoin(NamesOf(chosen), ", ")),
        Fields());
  }
  Start(chosen, std::move(choice));
}

}  // namespace ringd
