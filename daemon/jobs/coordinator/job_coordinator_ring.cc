// JobCoordinator's choice of the ring: in which order it passes through the nodes.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/jobs/coordinator/job_coordinator.h"
#include "daemon/jobs/coordinator/ring_order.h"
#include "daemon/schedule/routes/ring_planner.h"

namespace ringd {
namespace {

// With fewer nodes all rings are alike. With more, measuring each pair takes long: a round for each
// node, of about 5 ms at 1 Gbit/s.
constexpr std::size_t kFewestMeasured = 4;
constexpr std::size_t kMostMeasured = 32;

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
    ChooseFlat(std::move(order), std::move(choice), now);
    return;
  }
  if (!options_.measure_links || !AreDistinct(names) || order.size() < kFewestMeasured) {
    ChooseFlat(std::move(order), {}, now);
    return;
  }
  if (options_.plans != nullptr) {
    if (const auto known = options_.plans->FindLinks(names, UnixSeconds()); known.has_value()) {
      FollowLinks(std::move(order), *known, now);
      return;
    }
  }
  if (order.size() <= kMostMeasured && MayMeasure(names, now)) {
    BeginMeasuring(now);
    // As random as the job's, and another.
    AskForLinks(order, ~options_.wire_id);
  } else {
    ChooseFlat(std::move(order), {}, now);
  }
}

void JobCoordinator::AskForLinks(const std::vector<Node*>& order, std::uint64_t wire_id) {
  v1::CoordinatorMessage message;
  survey_ = std::make_unique<LinkSurvey>(
      AskToMeasure(order, wire_id, message, *message.mutable_link_probe()));
}

void JobCoordinator::OnLinkReport(LinkId link, const v1::LinkReport& report,
                                  Clock::time_point now) {
  // It may be late.
  if (survey_ == nullptr) return;
  if (absl::Status status = survey_->Add(link, report); !status.ok()) {
    EndSurvey(ReportedBy(link, status), now);
  } else if (survey_->complete()) {
    EndSurvey(absl::OkStatus(), now);
  }
}

// Nodes that are not done hear from Membership that it is over.
void JobCoordinator::EndSurvey(const absl::Status& outcome, Clock::time_point now) {
  const std::unique_ptr<LinkSurvey> survey = std::move(survey_);
  std::vector<Node*> order = NodesOf(survey->nodes());
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
  LogMeasured("the links between", order.size());
  if (options_.plans != nullptr) {
    options_.plans->PutLinks(names, known.links, known.unix_seconds);
  }
  FollowLinks(std::move(order), known, now);
}

void JobCoordinator::FollowLinks(std::vector<Node*> order, const KnownLinks& known,
                                 Clock::time_point now) {
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
  ChooseFlat(std::move(chosen), std::move(choice), now);
}

}  // namespace ringd
