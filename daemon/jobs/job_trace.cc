// The times of the job's operations: this node asks for all nodes' on behalf of its ringctls, and
// answers others.
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/jobs/job.h"

namespace ringd {
namespace {

// In one answer, whatever the coordinator allows.
constexpr std::size_t kMostEvents = 16 * 1024;

// How often communicators' numbers may have begun anew for one to be looked up by them.
constexpr std::uint32_t kFewTurns = 16;

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

void Job::OnTraceInquiry(v1::TraceInquiry inquiry, Clock::time_point now) {
  trace_inquiries_.Add(std::move(inquiry), now);
  // So that the answer, after the next tick, knows of the clock.
  if (!options_.coordinates_here) SendClockPing();
}

void Job::SendClockPing() {
  if (link_ == nullptr) return;
  v1::NodeMessage message;
  message.mutable_clock_ping()->set_sent_ns(MonotonicNanos());
  link_->Send(std::move(message));
}

void Job::OnClockPong(const v1::ClockPong& pong) {
  coordinator_watch_.OnPong();
  const std::uint64_t now_ns = MonotonicNanos();
  clock_offset_.Add(pong.sent_ns(), pong.now_ns(), now_ns);
  if (!trace_inquiries_.empty() && clock_offset_.WantsMore(now_ns)) SendClockPing();
}

bool Job::BeginTraceTurn() noexcept {
  if (trace_turn_ || trace_inquiries_.empty() || state_ != State::kRunning || agreed_.pending()) {
    return false;
  }
  trace_turn_ = true;
  return true;
}

std::size_t Job::AnswerTrace(std::size_t budget, Clock::time_point now) {
  if (state_ != State::kRunning || agreed_.pending() || !BeginTraceAnswer(now)) {
    trace_reading_.reset();
    trace_turn_ = false;
    return 1;
  }
  const auto find = [this](TracedPart part) { return FindTraced(part); };
  const std::size_t cost = trace_reading_->Step(*world_.communicator, find, budget);
  if (trace_reading_->done()) {
    SendTraceAnswer(now);
    trace_reading_.reset();
    trace_turn_ = false;
  }
  return cost;
}

const JobCommunicator* Job::FindTraced(TracedPart part) const {
  if (part.is_all_ranks()) return world_.communicator.get();
  if (parts_.empty() || parts_.rbegin()->first < part.number()) return nullptr;
  // The latest of those that are called so. Nearly always there is one only.
  const std::uint32_t turns = (parts_.rbegin()->first - part.number()) / TracedPart::kMost;
  if (turns < kFewTurns) {
    for (std::uint32_t turn = turns + 1; turn > 0; --turn) {
      const auto found = parts_.find(part.number() + (turn - 1) * TracedPart::kMost);
      if (found != parts_.end()) return found->second->communicator.get();
    }
    return nullptr;
  }
  for (auto it = parts_.rbegin(); it != parts_.rend(); ++it) {
    if (TracedPart(it->first) == part) return it->second->communicator.get();
  }
  return nullptr;
}

// False: nobody waits for one.
bool Job::BeginTraceAnswer(Clock::time_point now) {
  if (trace_reading_.has_value()) return true;
  const std::optional<v1::TraceInquiry> inquiry = trace_inquiries_.Next(now);
  if (!inquiry.has_value()) return false;
  trace_answer_.set_asker(inquiry->asker());
  trace_answer_.set_number(inquiry->number());
  trace_reading_.emplace(inquiry->position(),
                         std::min<std::size_t>(inquiry->most_events(), kMostEvents));
  return true;
}

void Job::SendTraceAnswer(Clock::time_point now) {
  if (link_ == nullptr) return;
  v1::NodeTrace trace = trace_reading_->TakeTrace();
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
  v1::NodeMessage message;
  message.mutable_trace_answer()->Swap(&trace_answer_);
  *message.mutable_trace_answer()->mutable_trace() = std::move(trace);
  link_->Send(std::move(message));
}

}  // namespace ringd
