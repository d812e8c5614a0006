// An engine that answers nothing, for tests of what lies in front of it.
#ifndef RINGD_TESTS_DAEMON_RPC_UNAVAILABLE_ENGINE_H_
#define RINGD_TESTS_DAEMON_RPC_UNAVAILABLE_ENGINE_H_

#include <functional>

#include "daemon/engine/engine_control.h"

namespace ringd {

class UnavailableEngine final : public EngineControl {
 public:
  absl::Status Join(absl::string_view, const v1::JoinRequest&, v1::JoinReply*,
                    const std::function<bool()>&) override {
    return No();
  }
  absl::Status RegisterTensors(absl::string_view, const v1::RegisterTensorsRequest&,
                               v1::RegisterTensorsReply*) override {
    return No();
  }
  absl::Status DescribeMismatch(absl::string_view, const v1::DescribeMismatchRequest&,
                                v1::DescribeMismatchReply*) override {
    return No();
  }
  absl::Status Leave(absl::string_view) override { return No(); }
  absl::Status GetStatus(v1::StatusReply*) override { return No(); }
  absl::Status ListJobs(const v1::ListJobsRequest&, v1::JobsReply*) override { return No(); }
  absl::Status ListCommunicators(const v1::ListCommunicatorsRequest&,
                                 v1::CommunicatorsReply*) override {
    return No();
  }
  absl::Status ListQueues(const v1::ListQueuesRequest&, v1::QueuesReply*) override { return No(); }
  absl::Status ReportExit(const v1::ReportExitRequest&) override { return No(); }

 private:
  static absl::Status No() { return absl::UnavailableError("there is no engine"); }
};

}  // namespace ringd

#endif  // RINGD_TESTS_DAEMON_RPC_UNAVAILABLE_ENGINE_H_
