// Calls of trainers and of ringctl that the supervisor passes on, answered on the progress thread.
#include <algorithm>
#include <cstdint>
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

}  // namespace

std::function<void()> Engine::Join(const Caller&, absl::string_view token,
                                   const v1::JoinRequest& request, const DoorKey& job_key,
                                   Answer<v1::JoinReply> answer) {
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
  commands_.Post([this, call, token = std::string(token), request, job_key] {
    JoinNow(token, request, job_key,
            [call](const absl::Status& status, const v1::JoinReply& reply) {
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

void Engine::Leave(const Caller&, absl::string_view token, const v1::LeaveRequest& request,
                   Answer<v1::LeaveReply> answer) {
  const auto call = Begin(std::move(answer));
  PostCall(call, [this, call, token = std::string(token), failure = request.failure()] {
    SessionEntry* entry = FindToken(token);
    if (entry == nullptr) {
      call->Finish(UnknownToken());
      return;
    }
    if (entry->job != nullptr) {
      if (failure.empty()) {
        entry->job->Leave(*entry->session, Clock::now());
      } else {
        entry->job->LeaveFailed(*entry->session, failure, Clock::now());
      }
    }
    call->Finish(absl::OkStatus());
  });
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
