#include "daemon/supervisor/supervisor.h"

#include <unistd.h>

#include <chrono>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "daemon/gpu/gpu_findings.h"
#include "daemon/supervisor/engine_call.h"
#include "daemon/supervisor/join_check.h"
#include "daemon/supervisor/process_use.h"
#include "proto/base/build_id.h"
#include "proto/door/door_key.h"
#include "proto/types/job_weight.h"

namespace ringd {
namespace {

// The first status waits for a look for GPUs: without a driver that takes some tens of
// milliseconds.
constexpr auto kPatienceForGpus = std::chrono::milliseconds(300);

// Fewer than operators, who see all jobs and change nothing.
bool MayAdminister(const Caller& caller) { return caller.uid == 0 || caller.uid == ::geteuid(); }

absl::Status UnknownToken() { return absl::UnauthenticatedError("no session has this token"); }

}  // namespace

Supervisor::Supervisor(SupervisorOptions options, Lobby* lobby, GpuFinder* gpus, Engines* engines,
                       NodeDrain* drain)
    : lobby_(lobby), gpus_(gpus), engines_(engines), drain_(drain), options_(std::move(options)) {}

void Supervisor::Reload(const Config& config) {
  const MutexLock lock(mutex_);
  options_.config = config;
}

void Supervisor::TellOfLinks(const std::string& problems) {
  const MutexLock lock(mutex_);
  link_problems_ = problems;
}

absl::StatusOr<std::shared_ptr<EngineClient>> Supervisor::HandOver(absl::string_view token,
                                                                   const v1::JoinRequest& request,
                                                                   std::string& job_key) {
  if (absl::Status status = CheckPlaces(request); !status.ok()) return status;
  std::unique_ptr<SessionResources> session = lobby_->Take(token);
  if (session == nullptr) {
    const std::shared_ptr<EngineClient> engine = engines_->Find(token);
    if (engine == nullptr) return UnknownToken();
    // It has joined already, or is about to, or its engine has refused it and may take it now.
    if (request.job_id() != engine->job_id()) {
      return absl::InvalidArgumentError(absl::StrCat("this session has asked for a place in job '",
                                                     engine->job_id(),
                                                     "' before, and can have none in another one"));
    }
    if (absl::Status status = CheckAndFindKey(request, engine->uid(), job_key); !status.ok()) {
      return status;
    }
    return engine;
  }
  auto engine = HandOver(std::move(session), request, job_key);
  lobby_->Settle();
  return engine;
}

absl::Status Supervisor::CheckAndFindKey(const v1::JoinRequest& request, uid_t uid,
                                         std::string& job_key) {
  const MutexLock lock(mutex_);
  const DoorKey key = JobKey(options_.cluster_key, request.job_id(), request.secret(), uid);
  job_key.assign(reinterpret_cast<const char*>(key.data()), key.size());
  return CheckJoin(request,
                   {options_.config, options_.peer_address, !options_.cluster_key.empty()});
}

absl::StatusOr<std::shared_ptr<EngineClient>> Supervisor::HandOver(
    std::unique_ptr<SessionResources> session, const v1::JoinRequest& request,
    std::string& job_key) {
  const uid_t uid = session->peer.uid;
  if (absl::Status status = CheckAndFindKey(request, uid, job_key); !status.ok()) {
    engines_->NoteTurnedAway(uid, request.job_id(), std::string(status.message()));
    lobby_->Add(std::move(session));
    return status;
  }
  auto engine = engines_->Give(session, request.job_id(), JobWeightOrDefault(request.weight()));
  if (!engine.ok() && session != nullptr) lobby_->Add(std::move(session));
  return engine;
}

std::function<void()> Supervisor::Join(const Caller& caller, absl::string_view token,
                                       const v1::JoinRequest& request,
                                       Answer<v1::JoinReply> answer) {
  EngineClient::Order order;
  order.kind = v1::ENGINE_CALL_JOIN;
  order.caller = caller;
  order.token = std::string(token);
  order.request = request.SerializeAsString();
  const auto engine = HandOver(token, request, order.job_key);
  if (!engine.ok()) {
    answer(engine.status(), {});
    return [] {};
  }
  const std::uint64_t call =
      (*engine)->Call(std::move(order), {}, ParsedAnswer<v1::JoinReply>(std::move(answer)));
  return [engine = *engine, call] { engine->GiveUp(call); };
}

template <typename Request, typename Reply>
void Supervisor::Forward(v1::EngineCallKind kind, const Caller& caller, absl::string_view token,
                         const Request& request, Answer<Reply> answer) {
  const auto engine = engines_->Find(token);
  if (engine == nullptr) {
    return answer(lobby_->Has(token) ? NotJoined() : UnknownToken(), {});
  }
  engine->Call({kind, caller, std::string(token), request.SerializeAsString(), ""}, {},
               ParsedAnswer<Reply>(std::move(answer)));
}

void Supervisor::RegisterTensors(const Caller& caller, absl::string_view token,
                                 const v1::RegisterTensorsRequest& request,
                                 Answer<v1::RegisterTensorsReply> answer) {
  Forward(v1::ENGINE_CALL_REGISTER_TENSORS, caller, token, request, std::move(answer));
}

void Supervisor::UnregisterTensors(const Caller& caller, absl::string_view token,
                                   const v1::UnregisterTensorsRequest& request,
                                   Answer<v1::UnregisterTensorsReply> answer) {
  Forward(v1::ENGINE_CALL_UNREGISTER_TENSORS, caller, token, request, std::move(answer));
}

void Supervisor::DescribeMismatch(const Caller& caller, absl::string_view token,
                                  const v1::DescribeMismatchRequest& request,
                                  Answer<v1::DescribeMismatchReply> answer) {
  Forward(v1::ENGINE_CALL_DESCRIBE_MISMATCH, caller, token, request, std::move(answer));
}

void Supervisor::CreateCommunicator(const Caller& caller, absl::string_view token,
                                    const v1::CreateCommunicatorRequest& request,
                                    Answer<v1::CreateCommunicatorReply> answer) {
  Forward(v1::ENGINE_CALL_CREATE_COMMUNICATOR, caller, token, request, std::move(answer));
}

void Supervisor::DestroyCommunicator(const Caller& caller, absl::string_view token,
                                     const v1::DestroyCommunicatorRequest& request,
                                     Answer<v1::DestroyCommunicatorReply> answer) {
  Forward(v1::ENGINE_CALL_DESTROY_COMMUNICATOR, caller, token, request, std::move(answer));
}

void Supervisor::OpenDevice(const Caller& caller, absl::string_view token,
                            const v1::OpenDeviceRequest& request,
                            Answer<v1::OpenDeviceReply> answer) {
  Forward(v1::ENGINE_CALL_OPEN_DEVICE, caller, token, request, std::move(answer));
}

void Supervisor::AgreeOnDevices(const Caller& caller, absl::string_view token,
                                const v1::AgreeOnDevicesRequest& request,
                                Answer<v1::AgreeOnDevicesReply> answer) {
  Forward(v1::ENGINE_CALL_AGREE_ON_DEVICES, caller, token, request, std::move(answer));
}

void Supervisor::Leave(const Caller& caller, absl::string_view token,
                       const v1::LeaveRequest& request, Answer<v1::LeaveReply> answer) {
  // There is nothing to leave.
  if (lobby_->Has(token)) return answer(absl::OkStatus(), {});
  Forward(v1::ENGINE_CALL_LEAVE, caller, token, request, std::move(answer));
}

void Supervisor::GetStatus(const Caller& caller, Answer<v1::StatusReply> answer) {
  if (gpus_ == nullptr) return answer(absl::OkStatus(), DescribeStatus(caller, ""));
  gpus_->Recall(kPatienceForGpus, [this, caller, answer](const v1::GpusReply& gpus) {
    answer(absl::OkStatus(), DescribeStatus(caller, SummaryOf(gpus)));
  });
}

std::uint32_t Supervisor::CountJobs() {
  std::uint32_t jobs = 0;
  for (const auto& engine : engines_->Serving()) jobs += engine->jobs();
  return jobs;
}

std::uint32_t Supervisor::CountSessions() {
  // In this order: they go from the lobby to an engine.
  const std::size_t waiting = lobby_->size();
  return static_cast<std::uint32_t>(waiting + engines_->sessions());
}

v1::StatusReply Supervisor::DescribeStatus(const Caller& caller, const std::string& gpus) {
  v1::StatusReply reply;
  reply.set_schema_version(kAdminSchemaVersion);
  reply.set_pid(::getpid());
  reply.set_gpus(gpus);
  std::uint64_t resident = UseOf(::getpid()).resident_bytes;
  for (const auto& engine : engines_->Serving()) {
    resident += UseOf(engine->pid()).resident_bytes;
  }
  reply.set_resident_bytes(resident);
  reply.set_jobs(CountJobs());
  reply.set_sessions(CountSessions());
  reply.set_sessions_ended_for_cause(engines_->sessions_ended_for_cause());
  reply.set_attaches_refused(attaches_refused_.load(std::memory_order_relaxed));
  const Clock::time_point now = Clock::now();
  reply.set_uptime_seconds(std::chrono::duration<double>(now - started_).count());
  const NodeDrain::State drain = drain_->state();
  reply.set_state(drain.Name());
  reply.set_ending(drain.ending);
  // Asks the file system: for those alone who answer for it.
  if (caller.is_operator) {
    reply.set_engine_program_replaced(engines_->program().IsReplaced());
  }
  if (drain.IsDraining()) {
    reply.set_draining_seconds(std::chrono::duration<double>(now - *drain.since).count());
  }
  const MutexLock lock(mutex_);
  const Config& config = options_.config;
  reply.set_version(options_.version);
  reply.set_build(BuildId());
  reply.set_node_name(config.node_name);
  reply.set_socket(config.socket);
  reply.set_peer_address(options_.peer_address);
  reply.set_backend(options_.backend);
  reply.set_config_file(options_.config_file);
  reply.set_link_problems(link_problems_);
  reply.set_arena_bytes_per_session(config.arena_bytes);
  reply.set_shows_users(caller.is_operator);
  if (!caller.is_operator) return reply;
  for (const std::string& user : config.allowed_users) reply.add_allowed_users(user);
  for (const std::string& group : config.allowed_groups) reply.add_allowed_groups(group);
  reply.set_operators_group(config.operators_group);
  return reply;
}

void Supervisor::Drain(const Caller& caller, const v1::DrainRequest& request,
                       Answer<v1::DrainReply> answer) {
  if (!MayAdminister(caller)) {
    return answer(absl::PermissionDeniedError(
                      "only root and ringd's own user may say whether a node takes new jobs"),
                  {});
  }
  if (absl::Status status = drain_->Set(!request.undo()); !status.ok()) return answer(status, {});
  v1::DrainReply reply;
  reply.set_schema_version(kAdminSchemaVersion);
  {
    const MutexLock lock(mutex_);
    reply.set_node_name(options_.config.node_name);
  }
  reply.set_state(drain_->state().Name());
  reply.set_sessions(CountSessions());
  reply.set_jobs(CountJobs());
  answer(absl::OkStatus(), std::move(reply));
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

}  // namespace ringd
