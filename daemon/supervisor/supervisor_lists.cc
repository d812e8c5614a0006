// What is asked of several engines at once.
#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/supervisor/engine_call.h"
#include "daemon/supervisor/gathered_answers.h"
#include "daemon/supervisor/join_check.h"
#include "daemon/supervisor/list_answers.h"
#include "daemon/supervisor/process_use.h"
#include "daemon/supervisor/supervisor.h"

namespace ringd {
namespace {

// Below that of ringctl. A list is shown without engines that have not answered by then.
constexpr auto kEnginePatience = std::chrono::seconds(3);
// It asks other nodes' engines for 2 s.
constexpr auto kTracePatience = std::chrono::seconds(4);
// Of a list with jobs that have ended: gRPC's messages have at most 64 MiB.
constexpr std::size_t kMostListBytes = std::size_t{60} << 20;

// What Label adds to a row, besides the job's id.
constexpr std::size_t kLabelBytes = 64;

bool MayShow(const Caller& caller, uid_t uid) { return caller.is_operator || caller.uid == uid; }

// An engine serves one job: all that it shows is of that, whatever it says.
void Label(v1::JobsReply& reply, const EngineClient& engine) {
  v1::EngineUse shown;
  const ProcessUse use = UseOf(engine.pid());
  shown.set_pid(engine.pid());
  shown.set_resident_bytes(use.resident_bytes);
  shown.set_own_bytes(use.own_bytes);
  shown.set_processor_seconds(use.processor_seconds);
  for (v1::Job& job : *reply.mutable_jobs()) {
    job.set_job_id(engine.job_id());
    job.set_uid(engine.uid());
    *job.mutable_engine() = shown;
  }
}
void Label(v1::CommunicatorsReply& reply, const EngineClient& engine) {
  for (auto& communicator : *reply.mutable_communicators()) {
    communicator.set_job_id(engine.job_id());
  }
}
void Label(v1::QueuesReply& reply, const EngineClient& engine) {
  for (auto& queue : *reply.mutable_queues()) queue.set_job_id(engine.job_id());
  for (auto& job : *reply.mutable_stalled_jobs()) job.set_job_id(engine.job_id());
}

// Adds what an engine has answered; what is wrong with it.
template <typename Reply>
absl::Status AddAnswer(const absl::StatusOr<std::string>& answer, const EngineClient& engine,
                       Reply& all) {
  if (!answer.ok()) return answer.status();
  Reply reply;
  if (!reply.ParseFromString(*answer)) return absl::InternalError("has answered what is no list");
  Label(reply, engine);
  // These are for ringd to say.
  reply.clear_unanswered();
  reply.clear_hidden_jobs();
  all.MergeFrom(reply);
  return absl::OkStatus();
}

}  // namespace

template <typename Request, typename Reply>
void Supervisor::List(v1::EngineCallKind kind, const Caller& caller, const Request& request,
                      Answer<Reply> answer, const std::function<void(Reply*)>& also) {
  std::vector<std::shared_ptr<EngineClient>> asked;
  std::vector<ListAnswers::Asked> counted;
  std::uint32_t hidden = 0;
  for (auto& engine : engines_->Serving()) {
    if (!MayShow(caller, engine->uid())) {
      // Whatever its name is: that would tell whether there is one of that name.
      hidden += engine->jobs();
    } else if (request.job_id().empty() || request.job_id() == engine->job_id()) {
      counted.push_back({engine->uid(), engine->job_id().size() + kLabelBytes});
      asked.push_back(std::move(engine));
    }
  }
  const auto finish = [hidden, asked, also, answer = std::move(answer)](
                          const std::vector<absl::StatusOr<std::string>>& answers) {
    Reply all;
    for (std::size_t i = 0; i < answers.size(); ++i) {
      const absl::Status status = AddAnswer(answers[i], *asked[i], all);
      // Else it is there, or has ended meanwhile.
      if (absl::IsDeadlineExceeded(status) || absl::IsResourceExhausted(status) ||
          absl::IsInternal(status)) {
        *all.add_unanswered() = absl::StrCat("job '", asked[i]->job_id(), "': ", status.message());
      }
    }
    all.set_schema_version(kAdminSchemaVersion);
    all.set_hidden_jobs(hidden);
    if (also != nullptr) also(&all);
    answer(absl::OkStatus(), std::move(all));
  };
  if (asked.empty()) return finish({});
  const auto gathered =
      std::make_shared<ListAnswers>(counted, Reply::descriptor(), ListAnswers::Limits(), finish);
  const std::string bytes = request.SerializeAsString();
  for (std::size_t i = 0; i < asked.size(); ++i) {
    asked[i]->Call({kind, caller, "", bytes, ""}, kEnginePatience,
                   [gathered, i](const absl::Status& status, EngineReply reply) {
                     gathered->Take(i, status, std::move(reply));
                   });
  }
}

void Supervisor::ListJobs(const Caller& caller, const v1::ListJobsRequest& request,
                          Answer<v1::JobsReply> answer) {
  const auto add_ended = [engines = engines_, caller, request](v1::JobsReply* reply) {
    std::uint32_t hidden = reply->hidden_jobs();
    std::size_t bytes = reply->ByteSizeLong();
    std::size_t left_out = 0;
    engines->ForEachEnded([&](const v1::Job& job) {
      if (!MayShow(caller, job.uid())) {
        ++hidden;
      } else if (request.job_id().empty() || request.job_id() == job.job_id()) {
        bytes += job.ByteSizeLong() + sizeof(std::uint64_t);
        if (bytes > kMostListBytes) {
          ++left_out;
        } else {
          *reply->add_jobs() = job;
        }
      }
      return true;
    });
    reply->set_hidden_jobs(hidden);
    if (left_out > 0) {
      *reply->add_unanswered() =
          absl::StrCat(left_out, " jobs that ended earlier: more than fits into the list");
    }
  };
  List(v1::ENGINE_CALL_LIST_JOBS, caller, request, std::move(answer),
       request.ended() ? add_ended : std::function<void(v1::JobsReply*)>());
}

void Supervisor::ListCommunicators(const Caller& caller,
                                   const v1::ListCommunicatorsRequest& request,
                                   Answer<v1::CommunicatorsReply> answer) {
  List(v1::ENGINE_CALL_LIST_COMMUNICATORS, caller, request, std::move(answer));
}

void Supervisor::ListQueues(const Caller& caller, const v1::ListQueuesRequest& request,
                            Answer<v1::QueuesReply> answer) {
  List(v1::ENGINE_CALL_LIST_QUEUES, caller, request, std::move(answer));
}

void Supervisor::TraceJob(const Caller& caller, const v1::TraceRequest& request,
                          Answer<v1::TraceReply> answer) {
  std::shared_ptr<EngineClient> found;
  for (const auto& engine : engines_->Serving()) {
    if (engine->job_id() != request.job_id() || !MayShow(caller, engine->uid())) continue;
    // An operator's own job of this name comes first, else the last one that began.
    if (found == nullptr || found->uid() != caller.uid || engine->uid() == caller.uid) {
      found = engine;
    }
  }
  if (found == nullptr) {
    return answer(absl::NotFoundError(absl::StrCat("no job '", request.job_id(),
                                                   "' of yours has ranks on this node")),
                  {});
  }
  // An engine that is silent or has gone is no ringd that is: who asked should not think so.
  const auto finish = [id = found->job_id(), answer = std::move(answer)](const absl::Status& status,
                                                                         v1::TraceReply reply) {
    const bool has_answered = !absl::IsDeadlineExceeded(status) && !absl::IsUnavailable(status);
    if (has_answered) return answer(status, std::move(reply));
    answer(absl::AbortedError(absl::StrCat("job '", id, "': ", status.message())), {});
  };
  found->Call({v1::ENGINE_CALL_TRACE_JOB, caller, "", request.SerializeAsString(), ""},
              kTracePatience, ParsedAnswer<v1::TraceReply>(finish));
}

void Supervisor::ReportExit(const Caller& caller, const v1::ReportExitRequest& request,
                            Answer<v1::ReportExitReply> answer) {
  std::vector<std::shared_ptr<EngineClient>> asked;
  // The request has the job's secret, which is not for the engines of other users: one of those may
  // have begun a job of this name to hear it. One that is too long is no job's.
  const bool may_be_known = request.secret().size() <= kMostSecretBytes;
  for (auto& engine : engines_->Serving()) {
    if (!may_be_known || engine->job_id() != request.job_id()) continue;
    if (MayShow(caller, engine->uid())) asked.push_back(std::move(engine));
  }
  // Nor has an operator's launcher a word for another user's job of the same name.
  const auto is_own = [&caller](const auto& engine) { return engine->uid() == caller.uid; };
  if (std::any_of(asked.begin(), asked.end(), is_own)) std::erase_if(asked, std::not_fn(is_own));
  const auto finish =
      [answer = std::move(answer)](std::vector<absl::StatusOr<v1::ReportExitReply>> replies) {
        // One that knows the rank has taken it; else what says most.
        absl::Status status = absl::NotFoundError("no such rank of such a job here");
        for (const auto& reply : replies) {
          if (reply.ok()) return answer(absl::OkStatus(), *reply);
          if (!absl::IsNotFound(reply.status())) status = reply.status();
        }
        answer(status, {});
      };
  if (asked.empty()) return finish({});
  const auto gathered =
      std::make_shared<GatheredAnswers<v1::ReportExitReply>>(asked.size(), finish);
  const std::string bytes = request.SerializeAsString();
  for (std::size_t i = 0; i < asked.size(); ++i) {
    asked[i]->Call({v1::ENGINE_CALL_REPORT_EXIT, caller, "", bytes, ""}, kEnginePatience,
                   ParsedAnswer<v1::ReportExitReply>(
                       [gathered, i](const absl::Status& status, v1::ReportExitReply reply) {
                         gathered->Take(i, status, std::move(reply));
                       }));
  }
}

}  // namespace ringd
