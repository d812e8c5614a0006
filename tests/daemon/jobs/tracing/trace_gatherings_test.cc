#include "daemon/jobs/tracing/trace_gatherings.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <vector>

namespace ringd {
namespace {

struct Answered {
  absl::Status status;
  v1::TraceReply reply;
};

struct Asking {
  absl::StatusOr<v1::NodeMessage> Begin(const v1::TraceRequest& request = {}) {
    v1::TraceReply reply;
    reply.add_nodes()->set_name("node-a");
    reply.add_nodes()->set_name("node-b");
    reply.mutable_nodes(1)->add_ranks()->set_rank(7);
    return gatherings.Begin(request, std::move(reply), now,
                            [this](const absl::Status& status, v1::TraceReply given) {
                              answers.push_back({status, std::move(given)});
                            });
  }
  void Answer(std::uint32_t number, int node, std::uint64_t next) {
    v1::TraceAnswer answer;
    answer.set_number(number);
    answer.set_node(node);
    answer.mutable_trace()->add_rings()->set_next(next);
    gatherings.OnAnswer(answer);
  }

  const Clock::time_point now = Clock::now();
  std::vector<Answered> answers;
  TraceGatherings gatherings;
};

TEST_CASE("TraceGatherings: ends with the answers of all nodes, each in its place") {
  Asking asking;
  const auto question = asking.Begin();
  REQUIRE(question.ok());
  const std::uint32_t number = question->trace_question().number();
  asking.Answer(number, 1, 11);
  CHECK(asking.answers.empty());
  asking.Answer(number, 0, 10);
  REQUIRE(asking.answers.size() == 1);
  CHECK(asking.answers[0].status.ok());
  CHECK(asking.answers[0].reply.nodes(0).trace().rings(0).next() == 10);
  CHECK(asking.answers[0].reply.nodes(1).trace().rings(0).next() == 11);
  CHECK(asking.gatherings.empty());
}

TEST_CASE("TraceGatherings: a node that does not answer in time is left out") {
  Asking asking;
  const auto question = asking.Begin();
  REQUIRE(question.ok());
  asking.Answer(question->trace_question().number(), 0, 10);
  asking.gatherings.EndLate(asking.now + TraceGatherings::kPatience / 2);
  CHECK(asking.answers.empty());
  asking.gatherings.EndLate(asking.now + TraceGatherings::kPatience);
  REQUIRE(asking.answers.size() == 1);
  CHECK(asking.answers[0].status.ok());
  CHECK(asking.answers[0].reply.nodes(0).has_trace());
  CHECK_FALSE(asking.answers[0].reply.nodes(1).has_trace());
}

TEST_CASE("TraceGatherings: answers that nobody asked for change nothing") {
  Asking asking;
  const auto question = asking.Begin();
  REQUIRE(question.ok());
  const std::uint32_t number = question->trace_question().number();
  asking.Answer(number + 1, 0, 1);
  asking.Answer(number, -1, 1);
  asking.Answer(number, 2, 1);
  asking.gatherings.EndLate(asking.now + TraceGatherings::kPatience);
  REQUIRE(asking.answers.size() == 1);
  for (const v1::TracedNode& node : asking.answers[0].reply.nodes()) CHECK_FALSE(node.has_trace());
}

TEST_CASE(
    "TraceGatherings: a question has a position for each node, with its rings, whatever was asked "
    "with") {
  Asking asking;
  v1::TraceRequest request;
  for (int i = 0; i < 1000; ++i) request.add_positions();
  for (std::uint64_t i = 1; i < 1000; ++i) request.mutable_positions(1)->add_rings(i);
  const auto question = asking.Begin(request);
  REQUIRE(question.ok());
  REQUIRE(question->trace_question().positions_size() == 2);
  REQUIRE(question->trace_question().positions(1).rings_size() == 2);
  CHECK(question->trace_question().positions(1).rings(1) == 2);
}

TEST_CASE("TraceGatherings: a few at once, and one more is refused") {
  Asking asking;
  for (std::size_t i = 0; i < TraceGatherings::kMost; ++i) REQUIRE(asking.Begin().ok());
  CHECK(absl::IsResourceExhausted(asking.Begin().status()));
  CHECK(asking.answers.empty());
}

TEST_CASE("TraceGatherings: each is answered once, also when the job fails or goes") {
  std::vector<absl::Status> ends;
  {
    TraceGatherings gatherings;
    const auto done = [&](const absl::Status& status, const v1::TraceReply&) {
      ends.push_back(status);
    };
    REQUIRE(gatherings.Begin({}, {}, Clock::now(), done).ok());
    gatherings.Fail(absl::FailedPreconditionError("it has failed"));
    REQUIRE(ends.size() == 1);
    CHECK(absl::IsFailedPrecondition(ends[0]));
    REQUIRE(gatherings.Begin({}, {}, Clock::now(), done).ok());
  }
  REQUIRE(ends.size() == 2);
  CHECK(absl::IsCancelled(ends[1]));
}

}  // namespace
}  // namespace ringd
