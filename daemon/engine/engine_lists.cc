// ListJobs, ListCommunicators, ListQueues: one job at a time, with rests in between.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "daemon/engine/engine.h"

namespace ringd {
namespace {

// A user who asks again and again takes a tenth of the engine at most: so long it rests for each
// microsecond of work.
constexpr auto kRestPerEntry = std::chrono::microseconds(9);
// Flows of lists and traces are those of users, flows of registrations those of sessions, whose
// numbers are smaller.
constexpr std::uint64_t kFirstUserFlow = std::uint64_t{1} << 32;

void DescribeInto(const Job& job, v1::JobsReply& reply) {
  job.Describe(reply.add_jobs(), Clock::now());
}

void DescribeInto(const Job& job, v1::CommunicatorsReply& reply) {
  job.Describe(&reply, Clock::now());
}

void DescribeInto(const Job& job, v1::QueuesReply& reply) { job.Describe(&reply, Clock::now()); }

}  // namespace

// One call.
//
// Thread safety: none; the engine's, then the call thread's.
// Ownership: shared by the queue and the answer.
template <typename Reply>
class Engine::ListWork final : public SlicedWork,
                               public std::enable_shared_from_this<ListWork<Reply>> {
 public:
  // An empty `job_id`: all.
  ListWork(Engine* engine, const Caller& caller, std::string job_id,
           std::shared_ptr<PendingCall<Reply>> call)
      : engine_(engine), caller_(caller), job_id_(std::move(job_id)), call_(std::move(call)) {
    reply_.set_schema_version(kAdminSchemaVersion);
  }

  // Describes the next job, and counts the microseconds that this takes.
  std::size_t Step(std::size_t /*budget*/) override {
    const Clock::time_point begin = Clock::now();
    const Job* const job = Next();
    if (job == nullptr) {
      End(absl::OkStatus());
    } else if (Shows(job->options().uid, job->options().job_id)) {
      DescribeInto(*job, reply_);
    }
    const auto taken = std::chrono::ceil<std::chrono::microseconds>(Clock::now() - begin);
    return std::max<std::size_t>(1, static_cast<std::size_t>(taken.count()));
  }
  bool done() const override { return done_; }
  void Abandon(const absl::Status& why) override { End(why); }

 private:
  bool Shows(uid_t uid, const std::string& job_id) {
    if (!engine_->MayShow(caller_, uid)) {
      // Whatever its name is: that would tell whether there is one of that name.
      reply_.set_hidden_jobs(reply_.hidden_jobs() + 1);
      return false;
    }
    return job_id_.empty() || job_id == job_id_;
  }

  // Jobs come and go between steps. Their numbers only grow, and so they stand in the engine's
  // list.
  const Job* Next() {
    for (const auto& job : engine_->jobs_) {
      if (job->options().number <= last_) continue;
      last_ = job->options().number;
      return job.get();
    }
    return nullptr;
  }

  void End(const absl::Status& status) {
    if (std::exchange(done_, true)) return;
    call_->Finish(status, [self = this->shared_from_this()] { return std::move(self->reply_); });
  }

  Engine* const engine_;
  const Caller caller_;
  const std::string job_id_;
  const std::shared_ptr<PendingCall<Reply>> call_;
  std::uint64_t last_ = 0;  // number of the last job that was looked at
  Reply reply_;
  bool done_ = false;
};

template <typename Reply>
void Engine::List(const Caller& caller, std::string job_id, Answer<Reply> answer) {
  const auto call = BeginSliced(std::move(answer));
  auto work = std::make_shared<ListWork<Reply>>(this, caller, std::move(job_id), call);
  PostSliced(call, FlowOf(caller.uid), std::move(work));
}

SlicedQueue::Flow Engine::FlowOf(uid_t uid) { return {kFirstUserFlow + uid, kRestPerEntry}; }

bool Engine::MayShow(const Caller& caller, uid_t uid) const {
  return caller.is_operator || caller.uid == uid;
}

void Engine::ListJobs(const Caller& caller, const v1::ListJobsRequest& request,
                      Answer<v1::JobsReply> answer) {
  List(caller, request.job_id(), std::move(answer));
}

void Engine::ListCommunicators(const Caller& caller, const v1::ListCommunicatorsRequest& request,
                               Answer<v1::CommunicatorsReply> answer) {
  List(caller, request.job_id(), std::move(answer));
}

void Engine::ListQueues(const Caller& caller, const v1::ListQueuesRequest& request,
                        Answer<v1::QueuesReply> answer) {
  List(caller, request.job_id(), std::move(answer));
}

}  // namespace ringd
