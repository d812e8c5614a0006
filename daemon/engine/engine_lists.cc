// ListJobs, ListCommunicators, ListQueues.
#include <utility>

#include "daemon/engine/engine.h"

namespace ringd {
namespace {

// Version of the messages in proto/rpc/admin.proto.
constexpr std::uint32_t kSchemaVersion = 1;

}  // namespace

void Engine::ListJobs(const Caller&, const v1::ListJobsRequest& request, Answer<v1::JobsReply> answer) {
  const auto call = Begin(std::move(answer));
  PostCall(call, [this, call, job_id = request.job_id()] {
    auto result = std::make_shared<v1::JobsReply>();
    result->set_schema_version(kSchemaVersion);
    for (const auto& job : jobs_) {
      if (!job_id.empty() && job->options().job_id != job_id) continue;
      job->Describe(result->add_jobs(), Clock::now());
    }
    call->Finish(absl::OkStatus(), [result] { return std::move(*result); });
  });
}

void Engine::ListCommunicators(const Caller&, const v1::ListCommunicatorsRequest& request, Answer<v1::CommunicatorsReply> answer) {
  const auto call = Begin(std::move(answer));
  PostCall(call, [this, call, job_id = request.job_id()] {
    auto result = std::make_shared<v1::CommunicatorsReply>();
    result->set_schema_version(kSchemaVersion);
    for (const auto& job : jobs_) {
      if (!job_id.empty() && job->options().job_id != job_id) continue;
      v1::Communicator shown;
      job->Describe(&shown, Clock::now());
      if (shown.size() > 0) *result->add_communicators() = std::move(shown);
    }
    call->Finish(absl::OkStatus(), [result] { return std::move(*result); });
  });
}

void Engine::ListQueues(const Caller&, const v1::ListQueuesRequest& request, Answer<v1::QueuesReply> answer) {
  const auto call = Begin(std::move(answer));
  PostCall(call, [this, call, job_id = request.job_id()] {
    auto result = std::make_shared<v1::QueuesReply>();
    result->set_schema_version(kSchemaVersion);
    for (const auto& job : jobs_) {
      if (!job_id.empty() && job->options().job_id != job_id) continue;
      job->Describe(result.get(), Clock::now());
    }
    call->Finish(absl::OkStatus(), [result] { return std::move(*result); });
  });
}

}  // namespace ringd
