// What is asked of several engines at once.
#include <algorithm>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/supervisor/engine_call.h"
#include "daemon/supervisor/gathered_answers.h"
#include "daemon/supervisor/join_check.h"
#include "daemon/supervisor/supervisor.h"

namespace ringd {
namespace {

// Below that of ringctl. A list is shown without engines that have not answered by then.
constexpr auto kEnginePatience = std::chrono::seconds(3);

bool MayShow(const Caller& caller, uid_t uid) { return caller.is_operator || caller.uid == uid; }

}  // namespace

template <typename Request, typename Reply>
void Supervisor::List(v1::EngineCallKind kind, const Caller& caller, const Request& request,
                      Answer<Reply> answer, const std::function<void(Reply*)>& also) {
  std::vector<std::shared_ptr<EngineClient>> asked;
  std::uint32_t hidden = 0;
  for (auto& engine : engines_->Serving()) {
    if (MayShow(caller, engine->uid())) {
      asked.push_back(std::move(engine));
    } else {
      // Whatever its name is: that would tell whether there is one of that name.
      hidden += engine->jobs();
    }
  }
  const auto finish = [hidden, asked, also,
                       answer = std::move(answer)](std::vector<absl::StatusOr<Reply>> replies) {
    Reply all;
    std::uint32_t hidden_jobs = hidden;
    for (std::size_t i = 0; i < replies.size(); ++i) {
      absl::StatusOr<Reply>& reply = replies[i];
      if (reply.ok()) {
        hidden_jobs += reply->hidden_jobs();
        all.MergeFrom(*reply);
      } else if (absl::IsDeadlineExceeded(reply.status())) {
        *all.add_unanswered() =
            absl::StrCat("job '", asked[i]->job_id(), "': ", reply.status().message());
      }
      // Else it has ended meanwhile.
    }
    all.set_schema_version(kAdminSchemaVersion);
    all.set_hidden_jobs(hidden_jobs);
    if (also != nullptr) also(&all);
    answer(absl::OkStatus(), std::move(all));
  };
  if (asked.empty()) return finish({});
  const auto gathered = std::make_shared<GatheredAnswers<Reply>>(asked.size(), finish);
  const std::string bytes = request.SerializeAsString();
  for (std::size_t i = 0; i < asked.size(); ++i) {
    asked[i]->Call({kind, caller, "", bytes, ""}, kEnginePatience,
                   ParsedAnswer<Reply>([gathered, i](const absl::Status& status, Reply reply) {
                     gathered->Take(i, status, std::move(reply));
                   }));
  }
}

void Supervisor::ListJobs(const Caller& caller, const v1::ListJobsRequest& request,
                          Answer<v1::JobsReply> answer) {
  const auto add_ended = [this, caller, request](v1::JobsReply* reply) {
    std::uint32_t hidden = reply->hidden_jobs();
    engines_->ForEachEnded([&](const v1::Job& job) {
      if (!MayShow(caller, job.uid())) {
        ++hidden;
      } else if (request.job_id().empty() || request.job_id() == job.job_id()) {
        *reply->add_jobs() = job;
      }
      return true;
    });
    reply->set_hidden_jobs(hidden);
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
              kEnginePatience, ParsedAnswer<v1::TraceReply>(finish));
}

void Supervisor::ReportExit(const Caller& caller, const v1::ReportExitRequest& request,
                            Answer<v1::ReportExitReply> answer) {
  std::vector<std::shared_ptr<EngineClient>> asked;
  // One that is longer is no job's, and would only fill the channels to other users' engines.
  const bool may_be_known = request.secret().size() <= kMostSecretBytes;
  for (auto& engine : engines_->Serving()) {
    if (may_be_known && engine->job_id() == request.job_id()) asked.push_back(std::move(engine));
  }
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
