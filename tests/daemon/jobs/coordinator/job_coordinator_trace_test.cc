// Traces on their way through the coordinator.
#include <catch2/catch.hpp>
#include <string>

#include "daemon/jobs/coordinator/job_coordinator.h"
#include "tests/daemon/jobs/coordinator/recorded_nodes.h"

namespace ringd {
namespace {

v1::TraceInquiry InquiryOf(JoinedNodes& job, int node) {
  return job.nodes.Last(JoinedNodes::LinkOf(node), &v1::CoordinatorMessage::has_trace_inquiry,
                        &v1::CoordinatorMessage::trace_inquiry);
}

v1::TraceAnswer AnswerTo(JoinedNodes& job, int node) {
  return job.nodes.Last(JoinedNodes::LinkOf(node), &v1::CoordinatorMessage::has_trace_answer,
                        &v1::CoordinatorMessage::trace_answer);
}

v1::NodeMessage Answer(int asker, std::size_t bytes) {
  v1::NodeMessage message;
  message.mutable_trace_answer()->set_asker(asker);
  message.mutable_trace_answer()->set_number(9);
  message.mutable_trace_answer()->set_node(0);  // its word
  message.mutable_trace_answer()->mutable_trace()->add_rings()->set_events(std::string(bytes, 'e'));
  return message;
}

TEST_CASE("JobCoordinator: a question for a trace goes to all nodes, each with its own position") {
  JoinedNodes job(OptionsOf(3));
  REQUIRE(job.Started());
  v1::NodeMessage message;
  message.mutable_trace_question()->set_number(9);
  for (std::uint64_t node = 0; node < 3; ++node) {
    message.mutable_trace_question()->add_positions()->add_rings(100 + node);
  }
  job.coordinator.OnMessage(JoinedNodes::LinkOf(2), message, job.now);
  for (int node = 0; node < 3; ++node) {
    const v1::TraceInquiry inquiry = InquiryOf(job, node);
    CHECK(inquiry.asker() == 2);
    CHECK(inquiry.number() == 9);
    CHECK(inquiry.most_events() > 0);
    REQUIRE(inquiry.position().rings_size() == 1);
    CHECK(inquiry.position().rings(0) == 100 + static_cast<std::uint64_t>(node));
  }
}

TEST_CASE("JobCoordinator: an answer goes to who has asked, under the name of who has answered") {
  JoinedNodes job(OptionsOf(3));
  job.coordinator.OnMessage(JoinedNodes::LinkOf(1), Answer(2, 64), job.now);
  CHECK(AnswerTo(job, 2).number() == 9);
  CHECK(AnswerTo(job, 2).node() == 1);
  CHECK(AnswerTo(job, 2).trace().rings(0).events().size() == 64);
  CHECK(AnswerTo(job, 0).number() == 0);
  CHECK(AnswerTo(job, 1).number() == 0);
}

TEST_CASE("JobCoordinator: an answer that is too long, or to nobody, is dropped and ends no job") {
  JoinedNodes job(OptionsOf(2));
  job.coordinator.OnMessage(JoinedNodes::LinkOf(1), Answer(0, std::size_t{3} << 20), job.now);
  job.coordinator.OnMessage(JoinedNodes::LinkOf(1), Answer(17, 64), job.now);
  job.coordinator.OnMessage(JoinedNodes::LinkOf(1), Answer(-1, 64), job.now);
  CHECK(AnswerTo(job, 0).number() == 0);
  CHECK(job.nodes.FailuresOf(JoinedNodes::LinkOf(0)).empty());
}

TEST_CASE("JobCoordinator: answers a ping with its clock") {
  JoinedNodes job(OptionsOf(2));
  v1::NodeMessage ping;
  ping.mutable_clock_ping()->set_sent_ns(42);
  const std::uint64_t before = MonotonicNanos();
  job.coordinator.OnMessage(JoinedNodes::LinkOf(1), ping, job.now);
  const v1::ClockPong& pong =
      job.nodes.Last(JoinedNodes::LinkOf(1), &v1::CoordinatorMessage::has_clock_pong,
                     &v1::CoordinatorMessage::clock_pong);
  CHECK(pong.sent_ns() == 42);
  CHECK(pong.now_ns() >= before);
  CHECK(pong.now_ns() <= MonotonicNanos());
}

}  // namespace
}  // namespace ringd
