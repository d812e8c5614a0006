#include "daemon/supervisor/supervisor.h"

#include <chrono>
#include <utility>

#include "absl/status/status.h"
#include "daemon/gpu/gpu_findings.h"

namespace ringd {
namespace {

// The first status waits for a look for GPUs: without a driver that takes some tens of
// milliseconds.
constexpr auto kPatienceForGpus = std::chrono::milliseconds(300);

}  // namespace

std::function<void()> Supervisor::Join(const Caller& caller, absl::string_view token,
                                       const v1::JoinRequest& request,
                                       Answer<v1::JoinReply> answer) {
  // The engine knows the session before it is asked about it.
  if (auto session = lobby_->Take(token)) engine_->Attach(std::move(session));
  return engine_->Join(caller, token, request, std::move(answer));
}

void Supervisor::RegisterTensors(const Caller& caller, absl::string_view token,
                                 const v1::RegisterTensorsRequest& request,
                                 Answer<v1::RegisterTensorsReply> answer) {
  if (lobby_->Has(token)) return answer(NotJoined(), {});
  engine_->RegisterTensors(caller, token, request, std::move(answer));
}

void Supervisor::UnregisterTensors(const Caller& caller, absl::string_view token,
                                   const v1::UnregisterTensorsRequest& request,
                                   Answer<v1::UnregisterTensorsReply> answer) {
  if (lobby_->Has(token)) return answer(NotJoined(), {});
  engine_->UnregisterTensors(caller, token, request, std::move(answer));
}

void Supervisor::DescribeMismatch(const Caller& caller, absl::string_view token,
                                  const v1::DescribeMismatchRequest& request,
                                  Answer<v1::DescribeMismatchReply> answer) {
  if (lobby_->Has(token)) return answer(NotJoined(), {});
  engine_->DescribeMismatch(caller, token, request, std::move(answer));
}

void Supervisor::CreateCommunicator(const Caller& caller, absl::string_view token,
                                    const v1::CreateCommunicatorRequest& request,
                                    Answer<v1::CreateCommunicatorReply> answer) {
  if (lobby_->Has(token)) return answer(NotJoined(), {});
  engine_->CreateCommunicator(caller, token, request, std::move(answer));
}

void Supervisor::DestroyCommunicator(const Caller& caller, absl::string_view token,
                                     const v1::DestroyCommunicatorRequest& request,
                                     Answer<v1::DestroyCommunicatorReply> answer) {
  if (lobby_->Has(token)) return answer(NotJoined(), {});
  engine_->DestroyCommunicator(caller, token, request, std::move(answer));
}

void Supervisor::Leave(const Caller& caller, absl::string_view token,
                       Answer<v1::LeaveReply> answer) {
  // There is nothing to leave.
  if (lobby_->Has(token)) return answer(absl::OkStatus(), {});
  engine_->Leave(caller, token, std::move(answer));
}

void Supervisor::GetStatus(const Caller& caller, Answer<v1::StatusReply> answer) {
  if (gpus_ == nullptr) return AskForStatus(caller, "", std::move(answer));
  gpus_->Recall(kPatienceForGpus, [this, caller, answer](const v1::GpusReply& gpus) {
    AskForStatus(caller, SummaryOf(gpus), answer);
  });
}

void Supervisor::AskForStatus(const Caller& caller, std::string gpus,
                              Answer<v1::StatusReply> answer) {
  engine_->GetStatus(caller, [lobby = lobby_, gpus = std::move(gpus), answer = std::move(answer)](
                                 const absl::Status& status, v1::StatusReply reply) {
    reply.set_sessions(reply.sessions() + static_cast<std::uint32_t>(lobby->size()));
    reply.set_gpus(gpus);
    answer(status, std::move(reply));
  });
}

void Supervisor::GetGpus(const Caller& /*caller*/, Answer<v1::GpusReply> answer) {
  if (gpus_ == nullptr) {
    return answer(absl::UnimplementedError("this ringd does not look for GPUs"), {});
  }
  gpus_->Find([answer = std::move(answer)](const v1::GpusReply& found) {
    v1::GpusReply reply = found;
    reply.set_schema_version(kAdminSchemaVersion);
    answer(absl::OkStatus(), std::move(reply));
  });
}

void Supervisor::ListJobs(const Caller& caller, const v1::ListJobsRequest& request,
                          Answer<v1::JobsReply> answer) {
  engine_->ListJobs(caller, request, std::move(answer));
}

void Supervisor::ListCommunicators(const Caller& caller,
                                   const v1::ListCommunicatorsRequest& request,
                                   Answer<v1::CommunicatorsReply> answer) {
  engine_->ListCommunicators(caller, request, std::move(answer));
}

void Supervisor::ListQueues(const Caller& caller, const v1::ListQueuesRequest& request,
                            Answer<v1::QueuesReply> answer) {
  engine_->ListQueues(caller, request, std::move(answer));
}

void Supervisor::TraceJob(const Caller& caller, const v1::TraceRequest& request,
                          Answer<v1::TraceReply> answer) {
  engine_->TraceJob(caller, request, std::move(answer));
}

void Supervisor::ReportExit(const Caller& caller, const v1::ReportExitRequest& request,
                            Answer<v1::ReportExitReply> answer) {
  engine_->ReportExit(caller, request, std::move(answer));
}

}  // namespace ringd
