// JobCoordinator's choice between the algorithms for small all-reduces: up to which size they go
// through one node and back.
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/jobs/coordinator/job_coordinator.h"
#include "daemon/schedule/routes/all_reduce_times.h"

namespace ringd {

// The order is final: which nodes exchange in recursive doubling follows from it.
void JobCoordinator::ChooseFlat(std::vector<Node*> order, RingChoice ring, Clock::time_point now) {
  const std::vector<std::string> names = NamesOf(order);
  if (!options_.choose_flat_all_reduces || !options_.measure_links || !AreDistinct(names) ||
      !LinkModel::MayBeFlat(static_cast<int>(order.size()))) {
    Start(order, std::move(ring));
    return;
  }
  if (options_.plans != nullptr) {
    if (auto known = options_.plans->FindTrial(names, UnixSeconds()); known.has_value()) {
      FollowTrial(*std::move(known));
      Start(order, std::move(ring));
      return;
    }
  }
  if (!MayMeasure(names, now)) {
    Start(order, std::move(ring));
    return;
  }
  BeginMeasuring(now);
  ring_ = std::move(ring);
  v1::CoordinatorMessage message;
  // Not one of those of the link probes.
  trial_ = std::make_unique<TrialSurvey>(
      AskToMeasure(order, ~options_.wire_id - 2, message, *message.mutable_all_reduce_trial()));
}

void JobCoordinator::OnTrialReport(LinkId link, const v1::TrialReport& report) {
  // It may be late.
  if (trial_ == nullptr) return;
  if (absl::Status status = trial_->Add(link, report); !status.ok()) {
    EndTrial(ReportedBy(link, status));
  } else if (trial_->complete()) {
    EndTrial(absl::OkStatus());
  }
}

// Nodes that are not done hear from Membership that it is over.
void JobCoordinator::EndTrial(const absl::Status& outcome) {
  const std::unique_ptr<TrialSurvey> trial = std::move(trial_);
  const std::vector<Node*> order = NodesOf(trial->nodes());
  const std::vector<std::string> names = NamesOf(order);
  if (outcome.ok()) {
    LogMeasured("small all-reduces of", order.size());
    StoredTrial tried{names, trial->Times(), UnixSeconds()};
    if (options_.plans != nullptr) options_.plans->PutTrial(tried);
    FollowTrial(std::move(tried));
  } else {
    LogInfo(absl::StrCat("which all-reduces go through one node is assumed, since small ones "
                         "could not be tried: ",
                         outcome.message()),
            Fields());
    if (options_.plans != nullptr) options_.plans->NoteUnmeasured(names, UnixSeconds());
  }
  Start(order, std::move(ring_));
}

void JobCoordinator::FollowTrial(StoredTrial trial) {
  std::uint64_t& flat_bytes = options_.algorithms.flat_all_reduce_bytes;
  const std::uint64_t senders = trial.nodes.size() - 1;
  rank_exchange_sizes_ =
      SizesForRankExchange(trial.times, trial.nodes.size(), flat_bytes / senders);
  flat_bytes = LargestFlat(trial.times, flat_bytes / senders) * senders;
  tried_ = std::move(trial);
}

}  // namespace ringd
