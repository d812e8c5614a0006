// EngineControl: what gRPC's threads ask, answered on the engine thread.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/engine/engine.h"
#include "daemon/jobs/exit_report.h"
#include "proto/shm/job_segment.h"

namespace ringd {
namespace {

// A join waits as long as the start deadline; the coordinator answers by then, and this is its
// grace.
constexpr auto kJoinGrace = std::chrono::seconds(5);
// No patience of another rank is longer (CommunicatorAsk).
constexpr auto kLongestStart = std::chrono::hours(1);
// Of one user's jobs on this node, those that ranks wait for counted: each may take some
// descriptors, of which all users together have 65,536 (deploy/systemd).
constexpr std::size_t kMostCommunicatorsOfUser = 1024;
// A caller that has gone is mostly a process that has ended, of which its session tells more.
constexpr auto kGoneGrace = std::chrono::seconds(1);

std::uint64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t total = 0;
  std::uint64_t resident = 0;
  file >> total >> resident;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

std::function<void()> Engine::Join(const Caller&, absl::string_view token,
                                   const v1::JoinRequest& request, Answer<v1::JoinReply> answer) {
  const std::chrono::nanoseconds start_timeout =
      request.start_timeout_ms() > 0
          ? std::chrono::milliseconds(request.start_timeout_ms())
          : std::chrono::nanoseconds(start_timeout_ns_.load(std::memory_order_relaxed));
  const auto call = BeginCall(calls_, std::move(answer), start_timeout + kJoinGrace,
                              [] { return absl::DeadlineExceededError("the job did not start"); });
  if (!running_) {
    call->Finish(absl::UnavailableError("ringd is stopping"));
    return [] {};
  }
  commands_.Post([this, call, token = std::string(token), request] {
    JoinNow(token, request, [call](const absl::Status& status, const v1::JoinReply& reply) {
      call->Finish(status, [reply] { return reply; });
    });
  });
  return [this, call, token = std::string(token)] {
    if (!call->Finish(absl::CancelledError("the caller has gone"))) return;
    calls_.RunAt(Clock::now() + kGoneGrace,
                 [this, token] { commands_.Post([this, token] { GiveUpJoin(token); }); });
  };
}

void Engine::GiveUpJoin(const std::string& token) {
  const SessionEntry* entry = FindToken(token);
  // Nobody waits for the place that it holds: the other ranks hear of that now, not at the start
  // deadline.
  if (entry == nullptr || entry->job == nullptr) return;
  if (entry->job->state() != Job::State::kJoining) return;
  EndSession(entry->session->id(), "has given up joining", false);
}

void Engine::DescribeMismatch(const Caller&, absl::string_view token,
                              const v1::DescribeMismatchRequest& request,
                              Answer<v1::DescribeMismatchReply> answer) {
  const auto call = Begin(std::move(answer));
  if (static_cast<std::uint32_t>(request.metas_size()) > kMaxLocalMembers) {
    call->Finish(absl::InvalidArgumentError("more descriptions than a node has ranks"));
    return;
  }
  PostToJob(call, token, [call, request](const SessionEntry& entry) {
    const std::vector<std::uint32_t> metas(request.metas().begin(), request.metas().end());
    absl::StatusOr<std::string> described = entry.job->DescribeMismatch(
        CommunicatorId(request.communicator()), request.tensor(), metas);
    call->Finish(described.status(), [described] {
      v1::DescribeMismatchReply reply;
      reply.set_text(*described);
      return reply;
    });
  });
}

void Engine::CreateCommunicator(const Caller&, absl::string_view token,
                                const v1::CreateCommunicatorRequest& request,
                                Answer<v1::CreateCommunicatorReply> answer) {
  const std::chrono::nanoseconds patience =
      request.timeout_ms() > 0
          ? std::chrono::milliseconds(request.timeout_ms())
          : std::chrono::nanoseconds(start_timeout_ns_.load(std::memory_order_relaxed));
  // The job answers by then; another rank's patience may be longer.
  const auto call = BeginCall(calls_, std::move(answer), patience + kLongestStart + kJoinGrace, [] {
    return absl::DeadlineExceededError("the communicator was not made");
  });
  PostToJob(call, token, [this, call, request](const SessionEntry& entry) {
    if (absl::Status status = CheckCommunicatorsOf(entry.job->options().uid); !status.ok()) {
      call->Finish(status);
      return;
    }
    entry.job->CreateCommunicator(
        *entry.session, request,
        [call](const absl::Status& status, const v1::CreateCommunicatorReply& reply) {
          call->Finish(status, [reply] { return reply; });
        });
  });
}

absl::Status Engine::CheckCommunicatorsOf(uid_t uid) {
  std::uint64_t users = ExtraCommunicatorsOf(uid);
  if (options_.user_communicators.has_value()) {
    // With the one that is asked for: of two engines that ask at once, one sees both.
    options_.user_communicators->Set(users + 1);
    users = std::max<std::uint64_t>(options_.user_communicators->Sum(), 1) - 1;
  }
  if (users < kMostCommunicatorsOfUser) return absl::OkStatus();
  PublishCommunicators();
  return absl::ResourceExhaustedError(
      absl::StrCat("the jobs of uid ", uid, " have ", users, " communicators on ",
                   options_.config.node_name, ", and at most ", kMostCommunicatorsOfUser,
                   " are possible: destroy those that are not needed"));
}

std::uint64_t Engine::ExtraCommunicatorsOf(std::optional<uid_t> uid) const {
  std::uint64_t count = 0;
  for (const auto& job : jobs_) {
    if (!uid.has_value() || job->options().uid == *uid) count += job->extra_communicators();
  }
  return count;
}

void Engine::PublishCommunicators() {
  if (options_.user_communicators.has_value()) {
    options_.user_communicators->Set(ExtraCommunicatorsOf(std::nullopt));
  }
}

void Engine::DestroyCommunicator(const Caller&, absl::string_view token,
                                 const v1::DestroyCommunicatorRequest& request,
                                 Answer<v1::DestroyCommunicatorReply> answer) {
  const auto call = Begin(std::move(answer));
  PostToJob(call, token, [call, request](const SessionEntry& entry) {
    call->Finish(entry.job->DestroyCommunicator(
        *entry.session, CommunicatorId(request.communicator()), Clock::now()));
  });
}

void Engine::Leave(const Caller&, absl::string_view token, Answer<v1::LeaveReply> answer) {
  const auto call = Begin(std::move(answer));
  PostCall(call, [this, call, token = std::string(token)] {
    SessionEntry* entry = FindToken(token);
    if (entry == nullptr) {
      call->Finish(UnknownToken());
      return;
    }
    if (entry->job != nullptr) entry->job->Leave(*entry->session, Clock::now());
    call->Finish(absl::OkStatus());
  });
}

void Engine::GetStatus(const Caller& caller, Answer<v1::StatusReply> answer) {
  const auto call = Begin(std::move(answer));
  PostCall(call, [this, call, caller] {
    v1::StatusReply reply = DescribeStatus(caller);
    call->Finish(absl::OkStatus(), [reply = std::move(reply)]() mutable {
      reply.set_resident_bytes(ResidentBytes());
      return std::move(reply);
    });
  });
}

v1::StatusReply Engine::DescribeStatus(const Caller& caller) const {
  const Config& config = options_.config;
  const Clock::time_point now = Clock::now();
  v1::StatusReply reply;
  reply.set_schema_version(kAdminSchemaVersion);
  reply.set_version(options_.version);
  reply.set_pid(::getpid());
  reply.set_node_name(config.node_name);
  reply.set_state(draining_ ? "draining" : "serving");
  reply.set_uptime_seconds(std::chrono::duration<double>(now - started_).count());
  if (draining_since_.has_value()) {
    reply.set_draining_seconds(std::chrono::duration<double>(now - *draining_since_).count());
  }
  reply.set_socket(config.socket);
  reply.set_peer_address(options_.peer_address);
  reply.set_backend(transport_ == nullptr ? "none" : std::string(transport_->name()));
  reply.set_config_file(options_.config_file);
  reply.set_sessions(static_cast<std::uint32_t>(sessions_.size()));
  reply.set_jobs(static_cast<std::uint32_t>(jobs_.size()));
  reply.set_arena_bytes_per_session(config.arena_bytes);
  reply.set_sessions_ended_for_cause(sessions_ended_for_cause_);
  reply.set_attaches_refused(attaches_refused_.load(std::memory_order_relaxed));
  reply.set_shows_users(caller.is_operator);
  if (!caller.is_operator) return reply;
  for (const std::string& user : config.allowed_users) reply.add_allowed_users(user);
  for (const std::string& group : config.allowed_groups) reply.add_allowed_groups(group);
  reply.set_operators_group(config.operators_group);
  return reply;
}

Job* Engine::FindShown(const Caller& caller, const std::string& job_id) const {
  Job* found = nullptr;
  for (const auto& job : jobs_) {
    if (job->options().job_id != job_id || !MayShow(caller, job->options().uid)) continue;
    if (found == nullptr || job->state() == Job::State::kRunning) found = job.get();
  }
  return found;
}

void Engine::ReportExit(const Caller& caller, const v1::ReportExitRequest& request,
                        Answer<v1::ReportExitReply> answer) {
  const auto call = Begin(std::move(answer));
  PostCall(call, [this, call, caller, request] {
    call->Finish(DeliverExitReport(jobs_, request, [this, &caller](const Job& job) {
      return MayShow(caller, job.options().uid);
    }));
  });
}

}  // namespace ringd
