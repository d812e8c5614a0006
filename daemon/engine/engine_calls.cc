// EngineControl: what gRPC's threads ask, answered on the engine thread.
#include <unistd.h>

#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/engine/engine.h"
#include "daemon/peers/job_proof.h"
#include "proto/base/mutex.h"

namespace ringd {
namespace {

// Version of the messages in proto/rpc/admin.proto.
constexpr std::uint32_t kSchemaVersion = 1;
// Of one session. Names are kept as long as the job lives.
constexpr std::size_t kMaxRegistrations = 65'536;
constexpr auto kCallTimeout = std::chrono::seconds(5);
// A join waits as long as the start deadline; the coordinator answers by then, and this is its grace.
constexpr auto kJoinGrace = std::chrono::seconds(5);
constexpr auto kCancelLook = std::chrono::milliseconds(100);

// An answer on its way from one thread to another. Outlives the one who stops waiting.
class Answer {
 public:
  void Set(absl::Status status) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    status_ = std::move(status);
    set_ = true;
    changed_.NotifyAll();
  }
  // False if `deadline` passed.
  bool WaitUntil(Clock::time_point deadline, absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    while (!set_) {
      if (!changed_.WaitUntil(mutex_, deadline) && !set_) return false;
    }
    status = status_;
    return true;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool set_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

std::uint64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t total = 0;
  std::uint64_t resident = 0;
  file >> total >> resident;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

absl::Status Engine::CallOnEngine(std::function<absl::Status()> call) {
  if (!running_) return absl::UnavailableError("ringd is stopping");
  auto answer = std::make_shared<Answer>();
  commands_.Post([answer, call = std::move(call)] { answer->Set(call()); });
  absl::Status status;
  if (!answer->WaitUntil(Clock::now() + kCallTimeout, status)) {
    return absl::DeadlineExceededError("ringd's engine does not answer");
  }
  return status;
}

absl::Status Engine::Join(absl::string_view token, const v1::JoinRequest& request,
                          v1::JoinReply* reply, const std::function<bool()>& cancelled) {
  if (!running_) return absl::UnavailableError("ringd is stopping");
  auto answer = std::make_shared<Answer>();
  auto result = std::make_shared<v1::JoinReply>();
  commands_.Post([this, answer, result, token = std::string(token), request] {
    JoinNow(token, request, [answer, result](const absl::Status& status, const v1::JoinReply& got) {
      *result = got;
      answer->Set(status);
    });
  });
  const auto start_timeout = request.start_timeout_ms() > 0
                                 ? std::chrono::milliseconds(request.start_timeout_ms())
                                 : options_.config.start_timeout;
  const Clock::time_point deadline = Clock::now() + start_timeout + kJoinGrace;
  absl::Status status;
  while (!answer->WaitUntil(std::min(deadline, Clock::now() + kCancelLook), status)) {
    if (cancelled()) return absl::CancelledError("the caller has gone");
    if (Clock::now() >= deadline) return absl::DeadlineExceededError("the job did not start");
  }
  if (status.ok()) *reply = *result;
  return status;
}

absl::Status Engine::RegisterTensors(absl::string_view token,
                                     const v1::RegisterTensorsRequest& request,
                                     v1::RegisterTensorsReply* reply) {
  auto result = std::make_shared<v1::RegisterTensorsReply>();
  auto call = [this, token = std::string(token), request, result]() -> absl::Status {
    SessionEntry* entry = FindToken(token);
    if (entry == nullptr) return absl::UnauthenticatedError("no session has this token");
    if (entry->job == nullptr) return absl::FailedPreconditionError("join a job first");
    if (entry->session->registration_count() + static_cast<std::size_t>(request.tensors_size()) >
        kMaxRegistrations) {
      return absl::ResourceExhaustedError(
          absl::StrCat("more than ", kMaxRegistrations,
                       " different tensors: give tensors that come again the same name each time"));
    }
    // All are checked before any leaves a trace.
    std::vector<Registration> checked;
    for (const v1::TensorDescription& description : request.tensors()) {
      auto registration = CheckDescription(description, entry->job->options().size);
      if (!registration.ok()) return registration.status();
      checked.push_back(*std::move(registration));
    }
    for (Registration& registration : checked) {
      absl::Status status = entry->job->Register(*entry->session, registration);
      if (!status.ok()) return status;
    }
    for (Registration& registration : checked) {
      result->add_tensors(registration.tensor);
      result->add_metas(registration.meta_id);
      result->add_registrations(entry->session->Register(std::move(registration)).value());
    }
    return absl::OkStatus();
  };
  absl::Status status = CallOnEngine(std::move(call));
  if (status.ok()) *reply = *result;
  return status;
}

absl::Status Engine::DescribeMismatch(absl::string_view token,
                                      const v1::DescribeMismatchRequest& request,
                                      v1::DescribeMismatchReply* reply) {
  auto text = std::make_shared<std::string>();
  auto call = [this, token = std::string(token), request, text]() -> absl::Status {
    const SessionEntry* entry = FindToken(token);
    if (entry == nullptr) return absl::UnauthenticatedError("no session has this token");
    if (entry->job == nullptr) return absl::FailedPreconditionError("join a job first");
    const std::vector<std::uint32_t> metas(request.metas().begin(), request.metas().end());
    absl::StatusOr<std::string> described = entry->job->DescribeMismatch(request.tensor(), metas);
    if (!described.ok()) return described.status();
    *text = *std::move(described);
    return absl::OkStatus();
  };
  absl::Status status = CallOnEngine(std::move(call));
  if (status.ok()) reply->set_text(*text);
  return status;
}

absl::Status Engine::Leave(absl::string_view token) {
  return CallOnEngine([this, token = std::string(token)]() -> absl::Status {
    SessionEntry* entry = FindToken(token);
    if (entry == nullptr) return absl::UnauthenticatedError("no session has this token");
    if (entry->job != nullptr) entry->job->Leave(*entry->session, Clock::now());
    return absl::OkStatus();
  });
}

absl::Status Engine::GetStatus(v1::StatusReply* reply) {
  auto result = std::make_shared<v1::StatusReply>();
  absl::Status status = CallOnEngine([this, result] {
    const Config& config = options_.config;
    result->set_schema_version(kSchemaVersion);
    result->set_version(options_.version);
    result->set_pid(::getpid());
    result->set_node_name(config.node_name);
    result->set_state(draining_ ? "draining" : "serving");
    result->set_uptime_seconds(std::chrono::duration<double>(Clock::now() - started_).count());
    result->set_socket(config.socket);
    result->set_peer_address(options_.peer_address);
    result->set_backend(transport_ == nullptr ? "none" : std::string(transport_->name()));
    result->set_config_file(options_.config_file);
    result->set_sessions(static_cast<std::uint32_t>(sessions_.size()));
    result->set_jobs(static_cast<std::uint32_t>(jobs_.size()));
    result->set_arena_bytes_per_session(config.arena_bytes);
    result->set_sessions_ended_for_cause(sessions_ended_for_cause_);
    result->set_attaches_refused(attaches_refused_.load(std::memory_order_relaxed));
    result->set_resident_bytes(ResidentBytes());
    for (const std::string& user : config.allowed_users) result->add_allowed_users(user);
    return absl::OkStatus();
  });
  if (status.ok()) *reply = *result;
  return status;
}

absl::Status Engine::ListJobs(const v1::ListJobsRequest& request, v1::JobsReply* reply) {
  auto result = std::make_shared<v1::JobsReply>();
  absl::Status status = CallOnEngine([this, result, job_id = request.job_id()] {
    result->set_schema_version(kSchemaVersion);
    for (const auto& job : jobs_) {
      if (job_id.empty() || job->options().job_id == job_id) {
        job->Describe(result->add_jobs(), Clock::now());
      }
    }
    return absl::OkStatus();
  });
  if (status.ok()) *reply = *result;
  return status;
}

absl::Status Engine::ListCommunicators(const v1::ListCommunicatorsRequest& request,
                                       v1::CommunicatorsReply* reply) {
  auto result = std::make_shared<v1::CommunicatorsReply>();
  absl::Status status = CallOnEngine([this, result, job_id = request.job_id()] {
    result->set_schema_version(kSchemaVersion);
    for (const auto& job : jobs_) {
      if (!job_id.empty() && job->options().job_id != job_id) continue;
      v1::Communicator shown;
      job->Describe(&shown, Clock::now());
      if (shown.size() > 0) *result->add_communicators() = std::move(shown);
    }
    return absl::OkStatus();
  });
  if (status.ok()) *reply = *result;
  return status;
}

absl::Status Engine::ListQueues(const v1::ListQueuesRequest& request, v1::QueuesReply* reply) {
  auto result = std::make_shared<v1::QueuesReply>();
  absl::Status status = CallOnEngine([this, result, job_id = request.job_id()] {
    result->set_schema_version(kSchemaVersion);
    for (const auto& job : jobs_) {
      if (job_id.empty() || job->options().job_id == job_id) {
        job->Describe(result.get(), Clock::now());
      }
    }
    return absl::OkStatus();
  });
  if (status.ok()) *reply = *result;
  return status;
}

absl::Status Engine::ReportExit(const v1::ReportExitRequest& request) {
  return CallOnEngine([this, request]() -> absl::Status {
    for (const auto& job : jobs_) {
      // Without a secret nobody can show that it is the job's launcher.
      if (job->options().job_id != request.job_id() || job->options().secret.empty()) continue;
      if (!EqualInConstantTime(job->options().secret, request.secret())) {
        return absl::UnauthenticatedError("the job secret is wrong");
      }
      const ProcessExit exit{request.exit_code(), request.signal()};
      if (job->OnExitReport(Rank(request.rank()), exit)) return absl::OkStatus();
    }
    return absl::NotFoundError("no such rank of such a job here");
  });
}

}  // namespace ringd
