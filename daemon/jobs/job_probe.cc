// Job's part in measuring links: between the last rank's joining and the membership.
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/jobs/job.h"

namespace ringd {

void Job::OnLinkProbe(const v1::LinkProbe& probe) {
  if (state_ != State::kJoining || prober_ != nullptr) return;
  absl::StatusOr<std::unique_ptr<LinkProber>> started =
      transport_ == nullptr ? absl::StatusOr<std::unique_ptr<LinkProber>>(
                                  absl::FailedPreconditionError("no network backend"))
                            : LinkProber::Start(*transport_, probe, options_.weight);
  if (started.ok()) {
    prober_ = *std::move(started);
    return;
  }
  v1::LinkReport report;
  report.set_error(std::string(started.status().message()));
  SendLinkReport(std::move(report));
}

void Job::SendLinkReport(v1::LinkReport report) {
  if (link_ == nullptr) return;
  v1::NodeMessage message;
  *message.mutable_link_report() = std::move(report);
  link_->Send(std::move(message));
}

std::size_t Job::AdvanceProbe() {
  if (prober_ == nullptr) return 0;
  std::optional<v1::LinkReport> report = prober_->Poll();
  if (!report.has_value()) return 0;
  prober_.reset();
  if (!report->error().empty()) {
    LogDebug(absl::StrCat("links were not measured: ", report->error()), Fields());
  }
  // Later nobody asks any more.
  if (state_ == State::kJoining) SendLinkReport(*std::move(report));
  return 1;
}

void Job::EndProbe() {
  if (prober_ == nullptr) return;
  prober_->Abort("it took too long");
  AdvanceProbe();
}

}  // namespace ringd
