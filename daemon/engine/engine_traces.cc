// Traces: what is asked for here, and what other nodes want to know of jobs here. Both are done a
// bit at a time, in the flow of the user whose call or job it is.
#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/engine/engine.h"

namespace ringd {
namespace {

// Reading so many events takes about a microsecond, with what follows: the answer is put together,
// passed on to who has asked, and freed.
constexpr std::size_t kEventsPerEntry = 16;
// The same for what a reply says of a job's ranks.
constexpr std::size_t kRanksPerEntry = 8;

}  // namespace

// One call of TraceJob: what it costs to ask all nodes depends on how many ranks the job has.
//
// Thread safety: none; the engine's.
// Ownership: the call is shared with the gathering that is begun.
class Engine::TraceCall final : public SlicedWork {
 public:
  using Call = std::shared_ptr<PendingCall<v1::TraceReply>>;

  TraceCall(Engine* engine, const Caller& caller, v1::TraceRequest request, Call call)
      : engine_(engine), caller_(caller), request_(std::move(request)), call_(std::move(call)) {}

  std::size_t Step(std::size_t /*budget*/) override {
    done_ = true;
    Job* const job = engine_->FindShown(caller_, request_.job_id());
    if (job == nullptr) {
      call_->Finish(absl::NotFoundError(
          absl::StrCat("no job '", request_.job_id(), "' of yours has ranks on this node")));
      return 1;
    }
    job->Trace(
        request_, Clock::now(), [call = call_](const absl::Status& status, v1::TraceReply reply) {
          reply.set_schema_version(kAdminSchemaVersion);
          call->Finish(status, [reply = std::move(reply)]() mutable { return std::move(reply); });
        });
    return 1 + static_cast<std::size_t>(job->options().size) / kRanksPerEntry;
  }
  bool done() const override { return done_; }
  void Abandon(const absl::Status& why) override { call_->Finish(why); }

 private:
  Engine* const engine_;
  const Caller caller_;
  const v1::TraceRequest request_;
  const Call call_;
  bool done_ = false;
};

// One answer of a job's node. The job may go before it has had its turn.
//
// Thread safety: none; the engine's.
class Engine::TraceTurn final : public SlicedWork {
 public:
  TraceTurn(Engine* engine, CommunicatorId job) : engine_(engine), job_(job) {}

  std::size_t Step(std::size_t budget) override {
    const auto found = std::find_if(
        engine_->jobs_.begin(), engine_->jobs_.end(),
        [this](const std::unique_ptr<Job>& job) { return job->options().communicator == job_; });
    if (found == engine_->jobs_.end()) {
      done_ = true;
      return 1;
    }
    const std::size_t events = (*found)->AnswerTrace(budget * kEventsPerEntry, Clock::now());
    done_ = !(*found)->HasTraceTurn();
    return (events + kEventsPerEntry - 1) / kEventsPerEntry;
  }
  bool done() const override { return done_; }
  // Nobody here waits for it; who does, in a job that ends, hears that.
  void Abandon(const absl::Status& /*why*/) override { done_ = true; }

 private:
  Engine* const engine_;
  const CommunicatorId job_;
  bool done_ = false;
};

void Engine::TraceJob(const Caller& caller, const v1::TraceRequest& request,
                      Answer<v1::TraceReply> answer) {
  const auto call = BeginSliced(std::move(answer));
  PostSliced(call, FlowOf(caller.uid), std::make_shared<TraceCall>(this, caller, request, call));
}

void Engine::GiveTraceTurns() {
  for (const auto& job : jobs_) {
    if (!job->BeginTraceTurn()) continue;
    sliced_.Add(FlowOf(job->options().uid),
                std::make_shared<TraceTurn>(this, job->options().communicator));
  }
}

}  // namespace ringd
