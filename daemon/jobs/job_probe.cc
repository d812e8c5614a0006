// Job's part in measuring: between the last rank's joining and the membership.
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/jobs/job.h"
#include "daemon/jobs/measuring/all_reduce_prober.h"
#include "daemon/jobs/measuring/link_prober.h"

namespace ringd {

void Job::OnProbe(const v1::CoordinatorMessage& asked) {
  if (state_ != State::kJoining) return;
  if (probe_ == nullptr) {
    BeginProbe(asked);
    return;
  }
  // The coordinator has no more use for what is being measured.
  next_probe_ = asked;
  probe_->Abort("another one is asked for");
  AdvanceProbe();
}

void Job::BeginProbe(const v1::CoordinatorMessage& asked) {
  absl::StatusOr<std::unique_ptr<StartProbe>> begun =
      absl::FailedPreconditionError("no network backend");
  if (transport_ != nullptr) {
    const ProbeTerms terms{options_.weight, options_.key};
    begun = asked.has_link_probe()
                ? LinkProber::Start(*transport_, asked.link_probe(), terms)
                : AllReduceProber::Start(*transport_, asked.all_reduce_trial(), terms);
  }
  if (begun.ok()) {
    probe_ = *std::move(begun);
    return;
  }
  v1::NodeMessage message;
  std::string* const error = asked.has_link_probe()
                                 ? message.mutable_link_report()->mutable_error()
                                 : message.mutable_trial_report()->mutable_error();
  *error = std::string(begun.status().message());
  if (link_ != nullptr) link_->Send(std::move(message));
}

std::size_t Job::AdvanceProbe() {
  if (probe_ == nullptr) return 0;
  std::optional<v1::NodeMessage> report = probe_->Poll();
  if (!report.has_value()) return 0;
  probe_.reset();
  const std::string& error =
      report->has_link_report() ? report->link_report().error() : report->trial_report().error();
  if (!error.empty()) LogDebug(absl::StrCat("measuring failed: ", error), Fields());
  if (next_probe_.has_value()) {
    const v1::CoordinatorMessage asked = *std::exchange(next_probe_, std::nullopt);
    BeginProbe(asked);
  } else if (state_ == State::kJoining && link_ != nullptr) {
    // Later nobody asks any more.
    link_->Send(*std::move(report));
  }
  return 1;
}

void Job::EndProbe() {
  next_probe_.reset();
  if (probe_ == nullptr) return;
  probe_->Abort("it took too long");
  AdvanceProbe();
}

}  // namespace ringd
