// The times of the job's operations: this node asks for all nodes' on behalf of its ringctls, and
// answers others.
#include <time.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/jobs/job.h"

namespace ringd {
namespace {

// Of all nodes together, until the next tick. Who asked for more than that is left without an
// answer.
constexpr std::size_t kMostInquiries = 16;
// In one answer, whatever the coordinator allows.
constexpr std::size_t kMostEvents = 16 * 1024;

// What has to be added to Clock to get the time since 1970.
std::int64_t UnixOffset() {
  timespec wall{};
  ::clock_gettime(CLOCK_REALTIME, &wall);
  return wall.tv_sec * std::int64_t{1'000'000'000} + wall.tv_nsec -
         static_cast<std::int64_t>(MonotonicNanos());
}

}  // namespace

void Job::Trace(const v1::TraceRequest& request, Clock::time_point now,
                TraceGatherings::Done done) {
  if (state_ != State::kRunning || link_ == nullptr) {
    const std::string why = state_ == State::kFailed
                                ? absl::StrCat("has failed: ", failure().message())
                                : std::string("does not run yet: not all its ranks have joined");
    done(absl::FailedPreconditionError(absl::StrCat("job '", options_.job_id, "' ", why)), {});
    return;
  }
  v1::TraceReply reply;
  reply.set_job_id(options_.job_id);
  reply.set_generation(membership_->generation);
  reply.set_one_node(world_.communicator->CombinesLocally());
  reply.set_node_index(membership_->self.value());
  reply.set_now_ns(NanosOf(now));
  reply.set_unix_offset_ns(UnixOffset());
  for (const MemberNode& node : membership_->nodes) {
    v1::TracedNode& entry = *reply.add_nodes();
    entry.set_name(node.name);
    for (const MemberRank& rank : node.ranks) {
      v1::TracedRank& traced = *entry.add_ranks();
      traced.set_rank(rank.rank.value());
      traced.set_pid(rank.pid);
      traced.set_program(rank.program);
    }
  }
  absl::StatusOr<v1::NodeMessage> question =
      trace_gatherings_.Begin(request, std::move(reply), now, done);
  if (!question.ok()) {
    done(question.status(), {});
    return;
  }
  link_->Send(*std::move(question));
}

void Job::OnTraceInquiry(const v1::TraceInquiry& inquiry) {
  if (trace_inquiries_.size() >= kMostInquiries) return;
  trace_inquiries_.push_back(inquiry);
  // So that the answer, at the next tick, knows of the clock.
  if (!options_.coordinates_here) SendClockPing();
}

void Job::SendClockPing() {
  if (link_ == nullptr) return;
  v1::NodeMessage message;
  message.mutable_clock_ping()->set_sent_ns(MonotonicNanos());
  link_->Send(std::move(message));
}

void Job::OnClockPong(const v1::ClockPong& pong) {
  const std::uint64_t now_ns = MonotonicNanos();
  clock_offset_.Add(pong.sent_ns(), pong.now_ns(), now_ns);
  if (!trace_inquiries_.empty() && clock_offset_.WantsMore(now_ns)) SendClockPing();
}

void Job::AnswerTraces(Clock::time_point now) {
  trace_gatherings_.EndLate(now);
  for (const v1::TraceInquiry& inquiry : std::exchange(trace_inquiries_, {})) {
    if (link_ == nullptr) return;
    v1::NodeMessage message;
    v1::TraceAnswer& answer = *message.mutable_trace_answer();
    answer.set_asker(inquiry.asker());
    answer.set_number(inquiry.number());
    v1::NodeTrace& trace = *answer.mutable_trace();
    world_.communicator->ReadTrace(
        inquiry.position(), std::min<std::size_t>(inquiry.most_events(), kMostEvents), &trace);
    std::optional<ClockOffset::Estimate> estimate;
    if (options_.coordinates_here) {
      estimate.emplace();
    } else {
      estimate = clock_offset_.Best(NanosOf(now));
    }
    trace.set_clock_known(estimate.has_value());
    if (estimate.has_value()) {
      trace.set_clock_offset_ns(estimate->offset_ns);
      trace.set_clock_uncertainty_ns(estimate->uncertainty_ns);
    }
    link_->Send(std::move(message));
  }
}

}  // namespace ringd
