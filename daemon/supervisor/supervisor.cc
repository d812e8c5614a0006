#include "daemon/supervisor/supervisor.h"

#include <unistd.h>

#include <chrono>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/gpu/gpu_findings.h"
#include "daemon/supervisor/join_check.h"
#include "proto/door/door_key.h"

namespace ringd {
namespace {

// The first status waits for a look for GPUs: without a driver that takes some tens of
// milliseconds.
constexpr auto kPatienceForGpus = std::chrono::milliseconds(300);

std::uint64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t total = 0;
  std::uint64_t resident = 0;
  file >> total >> resident;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

Supervisor::Supervisor(SupervisorOptions options, Lobby* lobby, GpuFinder* gpus, Engine* engine,
                       EngineRecord* record)
    : version_(std::move(options.version)),
      peer_address_(std::move(options.peer_address)),
      backend_(std::move(options.backend)),
      config_file_(std::move(options.config_file)),
      cluster_key_(std::move(options.cluster_key)),
      lobby_(lobby),
      gpus_(gpus),
      engine_(engine),
      record_(record),
      config_(std::move(options.config)) {}

void Supervisor::Reload(const Config& config) {
  record_->SetHistoryLimit(config.remembered_jobs);
  MutexLock lock(mutex_);
  config_ = config;
}

void Supervisor::Drain() {
  MutexLock lock(mutex_);
  if (!draining_since_.has_value()) draining_since_ = Clock::now();
}

absl::Status Supervisor::MayJoin(const v1::JoinRequest& request) {
  if (absl::Status status = CheckPlaces(request); !status.ok()) return status;
  MutexLock lock(mutex_);
  if (draining_since_.has_value()) {
    return absl::FailedPreconditionError(
        absl::StrCat("ringd on ", config_.node_name, " is draining: it takes no new jobs"));
  }
  absl::Status status = CheckJoin(request, {config_, peer_address_, !cluster_key_.empty()});
  if (!status.ok()) engine_->NoteTurnedAway(std::string(status.message()));
  return status;
}

std::function<void()> Supervisor::Join(const Caller& caller, absl::string_view token,
                                       const v1::JoinRequest& request,
                                       Answer<v1::JoinReply> answer) {
  if (lobby_->Has(token)) {
    if (absl::Status status = MayJoin(request); !status.ok()) {
      answer(status, {});
      return [] {};
    }
  }
  // The engine knows the session before it is asked about it.
  if (auto session = lobby_->Take(token)) {
    record_->AddSession();
    engine_->Attach(std::move(session));
  }
  return engine_->Join(caller, token, request,
                       JobKey(cluster_key_, request.job_id(), request.secret(), caller.uid),
                       std::move(answer));
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
  if (gpus_ == nullptr) return answer(absl::OkStatus(), DescribeStatus(caller, ""));
  gpus_->Recall(kPatienceForGpus, [this, caller, answer](const v1::GpusReply& gpus) {
    answer(absl::OkStatus(), DescribeStatus(caller, SummaryOf(gpus)));
  });
}

v1::StatusReply Supervisor::DescribeStatus(const Caller& caller, const std::string& gpus) {
  const Clock::time_point now = Clock::now();
  v1::StatusReply reply;
  reply.set_schema_version(kAdminSchemaVersion);
  reply.set_version(version_);
  reply.set_pid(::getpid());
  reply.set_uptime_seconds(std::chrono::duration<double>(now - started_).count());
  reply.set_peer_address(peer_address_);
  reply.set_backend(backend_);
  reply.set_config_file(config_file_);
  reply.set_resident_bytes(ResidentBytes());
  reply.set_gpus(gpus);
  reply.set_attaches_refused(attaches_refused_.load(std::memory_order_relaxed));
  record_->Describe(reply);
  reply.set_sessions(reply.sessions() + static_cast<std::uint32_t>(lobby_->size()));
  reply.set_shows_users(caller.is_operator);
  MutexLock lock(mutex_);
  reply.set_node_name(config_.node_name);
  reply.set_socket(config_.socket);
  reply.set_arena_bytes_per_session(config_.arena_bytes);
  reply.set_state(draining_since_.has_value() ? "draining" : "serving");
  if (draining_since_.has_value()) {
    reply.set_draining_seconds(std::chrono::duration<double>(now - *draining_since_).count());
  }
  if (!caller.is_operator) return reply;
  for (const std::string& user : config_.allowed_users) reply.add_allowed_users(user);
  for (const std::string& group : config_.allowed_groups) reply.add_allowed_groups(group);
  reply.set_operators_group(config_.operators_group);
  return reply;
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
  if (!request.ended()) return engine_->ListJobs(caller, request, std::move(answer));
  engine_->ListJobs(caller, request,
                    [record = record_, caller, job_id = request.job_id(),
                     answer = std::move(answer)](const absl::Status& status, v1::JobsReply reply) {
                      if (status.ok()) record->AddEnded(caller, job_id, reply);
                      answer(status, std::move(reply));
                    });
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
