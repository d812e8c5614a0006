#include <catch2/catch.hpp>

#include "daemon/jobs/coordinator/job_coordinator.h"
#include "tests/daemon/jobs/coordinator/recorded_nodes.h"

namespace ringd {
namespace {

using Catch::Matchers::Contains;
using std::chrono::milliseconds;

const LinkId kA(1);
const LinkId kB(2);

// Two nodes with a rank each, of which one reports that it waits.
struct StalledWorld {
  StalledWorld() : coordinator(OptionsOf(2), &nodes, begin) {
    coordinator.AddNode(kA, HelloOf("node-a", 2, 1), begin);
    coordinator.AddNode(kB, HelloOf("node-b", 2, 1), begin);
    coordinator.OnMessage(kA, RankJoinedOf(0, 0, 100), begin);
    coordinator.OnMessage(kB, RankJoinedOf(1, 0, 101), begin);
  }

  void Report(const std::vector<std::string>& tensors, LinkId from = kA, double seconds = 5.0) {
    v1::NodeMessage message;
    for (const std::string& tensor : tensors) message.mutable_stall_report()->add_tensors(tensor);
    message.mutable_stall_report()->set_waiting_seconds(seconds);
    coordinator.OnMessage(from, message, begin);
  }
  std::uint32_t Inquiry(LinkId link) {
    return nodes
        .Last(link, &v1::CoordinatorMessage::has_stall_inquiry,
              &v1::CoordinatorMessage::stall_inquiry)
        .inquiry();
  }
  void Answer(LinkId link, std::uint32_t inquiry, const std::string& state = "",
              const std::vector<std::string>& tensors = {}, bool submitted = false,
              bool moving = false) {
    v1::NodeMessage message;
    message.mutable_stall_answer()->set_inquiry(inquiry);
    message.mutable_stall_answer()->set_moving(moving);
    if (!state.empty()) {
      v1::MissingRank& missing = *message.mutable_stall_answer()->add_missing();
      missing.set_rank(1);
      missing.set_pid(101);
      missing.set_state(state);
      missing.set_submitted(submitted);
      for (const std::string& tensor : tensors) missing.add_tensors(tensor);
    }
    coordinator.OnMessage(link, message, begin + milliseconds(250));
  }
  const v1::StallVerdict& Verdict(LinkId link) {
    return nodes.Last(link, &v1::CoordinatorMessage::has_stall_verdict,
                      &v1::CoordinatorMessage::stall_verdict);
  }

  const Clock::time_point begin = Clock::now();
  RecordedNodes nodes;
  JobCoordinator coordinator;
};

TEST_CASE(
    "Stall inquiry: every node is asked, and the verdict names who is waited for, everywhere") {
  StalledWorld world;
  world.Report({"gradient", "loss"});
  CHECK(world.Inquiry(kA) == world.Inquiry(kB));
  world.Answer(kA, world.Inquiry(kA));
  CHECK(world.Verdict(kA).text().empty());
  world.Answer(kB, world.Inquiry(kB), "stopped", {"gradient", "loss"});
  for (const LinkId link : {kA, kB}) {
    CHECK(world.Verdict(link).text() ==
          "waiting since 5.2 s: rank 1, pid 101 on node-b (stopped) has not submitted 'gradient', "
          "'loss'");
    REQUIRE(world.Verdict(link).tensors_size() == 2);
    CHECK(world.Verdict(link).tensors(0).name() == "gradient");
    REQUIRE(world.Verdict(link).tensors(0).waits_for_size() == 1);
    CHECK(world.Verdict(link).tensors(0).waits_for(0) == "rank 1, pid 101 on node-b (stopped)");
    // The same in parts.
    CHECK(world.Verdict(link).waiting_seconds() == Approx(5.25));
    CHECK(world.Verdict(link).why() ==
          "rank 1, pid 101 on node-b (stopped) has not submitted 'gradient', 'loss'");
    REQUIRE(world.Verdict(link).ranks_size() == 1);
    CHECK(world.Verdict(link).ranks(0).rank() == 1);
    CHECK(world.Verdict(link).ranks(0).host() == "node-b");
    CHECK(world.Verdict(link).ranks(0).state() == "stopped");
    CHECK(world.Verdict(link).ranks(0).tensors_size() == 2);
  }
}

TEST_CASE("Stall inquiry: a rank that runs is named without a state, and few of many tensors are") {
  StalledWorld world;
  world.Report({"t1", "t2", "t3", "t4", "t5"});
  world.Answer(kA, world.Inquiry(kA));
  world.Answer(kB, world.Inquiry(kB), "running", {"t1", "t2", "t3", "t4", "t5"});
  CHECK_THAT(world.Verdict(kA).text(),
             Contains("rank 1, pid 101 on node-b has not submitted 't1'"));
  CHECK_THAT(world.Verdict(kA).text(), Contains("'t3' and 2 more"));
}

TEST_CASE("Stall inquiry: a ringd that doesn't answer within a second is named itself") {
  StalledWorld world;
  world.Report({"gradient"});
  world.Answer(kA, world.Inquiry(kA));
  world.coordinator.Advance(world.begin + milliseconds(999));
  CHECK(world.Verdict(kA).text().empty());
  world.coordinator.Advance(world.begin + milliseconds(1001));
  CHECK_THAT(world.Verdict(kA).text(), Contains("ringd on node-b (rank 1) does not answer"));
  REQUIRE(world.Verdict(kA).tensors_size() == 1);
  CHECK(world.Verdict(kA).tensors(0).waits_for(0) == "node-b");
}

TEST_CASE("Stall inquiry: ranks that wait for different tensors hear about all of them") {
  StalledWorld world;
  world.Report({"a"});
  const std::uint32_t first = world.Inquiry(kA);
  world.Report({"a"}, kB);  // no news
  world.Report({"b"}, kB);
  world.Report({"c"}, kB);
  CHECK(world.Inquiry(kA) == first);
  world.Answer(kA, first);
  world.Answer(kB, first, "running", {"a"});
  CHECK_THAT(world.Verdict(kB).text(), Contains("rank 1, pid 101 on node-b has not submitted 'a'"));
  const std::uint32_t second = world.Inquiry(kA);
  CHECK(second != first);
  CHECK(world.Inquiry(kB) == second);
  world.Answer(kA, second);
  world.Answer(kB, second);
  CHECK(world.Verdict(kB).tensors_size() == 3);
  CHECK(world.Inquiry(kA) == second);
}

TEST_CASE("Stall inquiry: if nobody is missing the network is to blame") {
  StalledWorld world;
  world.Report({"gradient"});
  world.Answer(kA, world.Inquiry(kA));
  world.Answer(kB, world.Inquiry(kB));
  CHECK_THAT(world.Verdict(kB).text(), Contains("every rank has submitted 'gradient'"));
  CHECK_THAT(world.Verdict(kB).text(), Contains("data between the nodes does not arrive"));
}

TEST_CASE("Stall inquiry: what is under way is no stall, as long as its data moves anywhere") {
  StalledWorld world;
  world.Report({"gradient"});
  world.Answer(kA, world.Inquiry(kA));
  world.Answer(kB, world.Inquiry(kB), "", {}, false, true);
  CHECK(world.Verdict(kA).under_way());
  CHECK(world.Verdict(kA).why() ==
        "every rank has submitted 'gradient', and the data between the nodes is under way");
  // Of another operation: for this one somebody is missing.
  world.Report({"gradient"});
  world.Answer(kA, world.Inquiry(kA), "", {}, false, true);
  world.Answer(kB, world.Inquiry(kB), "running", {"gradient"});
  CHECK_FALSE(world.Verdict(kA).under_way());
}

TEST_CASE(
    "Stall inquiry: a rank is named whose GPU has not come so far; all of them are no stall") {
  StalledWorld world;
  world.Report({"gradient"});
  const auto answer = [&world](LinkId link, int rank, bool not_ready, bool moving = false,
                               const std::string& state = "running") {
    v1::NodeMessage message;
    v1::StallAnswer& told = *message.mutable_stall_answer();
    told.set_inquiry(world.Inquiry(link));
    told.set_on_gpus(true);
    told.set_moving(moving);
    if (not_ready) {
      v1::MissingRank& missing = *told.add_missing();
      missing.set_rank(rank);
      missing.set_pid(100 + rank);
      missing.set_state(state);
      missing.set_submitted(true);
      missing.set_not_ready(true);
      missing.add_tensors("gradient");
    }
    world.coordinator.OnMessage(link, message, world.begin + milliseconds(250));
  };
  answer(kA, 0, false);
  answer(kB, 1, true);
  CHECK_FALSE(world.Verdict(kA).under_way());
  CHECK(world.Verdict(kA).why() ==
        "rank 1, pid 101 on node-b has not got 'gradient' ready on its GPU");
  REQUIRE(world.Verdict(kA).tensors(0).waits_for_size() == 1);
  CHECK(world.Verdict(kA).tensors(0).waits_for(0) == "rank 1, pid 101 on node-b");

  // Their hosts run ahead.
  world.Report({"gradient"});
  answer(kA, 0, true);
  answer(kB, 1, true);
  CHECK(world.Verdict(kA).under_way());
  // One that is stopped does not.
  world.Report({"gradient"});
  answer(kA, 0, true);
  answer(kB, 1, true, false, "stopped");
  CHECK_FALSE(world.Verdict(kA).under_way());
  // What comes before it ends, one after the other.
  world.Report({"gradient"});
  answer(kA, 0, false, true);
  answer(kB, 1, true);
  CHECK(world.Verdict(kA).under_way());
  // For so long no GPU computes.
  world.Report({"gradient"}, kA, 60.0);
  answer(kA, 0, true);
  answer(kB, 1, true);
  CHECK_FALSE(world.Verdict(kA).under_way());
  CHECK_THAT(world.Verdict(kA).why(), Contains("rank 0") && Contains("rank 1"));

  world.Report({"gradient"});
  answer(kA, 0, false);
  answer(kB, 1, false);
  CHECK_FALSE(world.Verdict(kA).under_way());
  CHECK(world.Verdict(kA).why() ==
        "every rank has submitted 'gradient', but NCCL has not ended it");
}

TEST_CASE("Stall inquiry: a verdict does not grow with the ranks that are awaited") {
  StalledWorld world;
  std::vector<std::string> tensors;
  for (int i = 0; i < 16; ++i) tensors.push_back("layers." + std::to_string(i) + ".weight");
  world.Report(tensors);
  v1::NodeMessage message;
  message.mutable_stall_answer()->set_inquiry(world.Inquiry(kB));
  for (int rank = 1; rank <= 1000; ++rank) {
    v1::MissingRank& missing = *message.mutable_stall_answer()->add_missing();
    missing.set_rank(rank);
    missing.set_state("running");
    for (const std::string& tensor : tensors) missing.add_tensors(tensor);
  }
  world.Answer(kA, world.Inquiry(kA));
  world.coordinator.OnMessage(kB, message, world.begin + milliseconds(250));
  const v1::StallVerdict& verdict = world.Verdict(kA);
  CHECK(verdict.ByteSizeLong() < 64 << 10);
  CHECK_THAT(verdict.why(), Contains("and 936 more like that"));
  REQUIRE(verdict.tensors_size() == 16);
  CHECK(verdict.tensors(15).waits_for_size() == 8);
  CHECK(verdict.tensors(15).waits_for_left_out() == 992);
  CHECK(verdict.ranks_left_out() == 936);
}

TEST_CASE("Stall inquiry: a rank that is stopped amid its part of an operation does not go on") {
  StalledWorld world;
  world.Report({"gradient"});
  world.Answer(kA, world.Inquiry(kA));
  world.Answer(kB, world.Inquiry(kB), "stopped", {"gradient"}, /*submitted=*/true);
  CHECK_THAT(world.Verdict(kA).text(),
             Contains("rank 1, pid 101 on node-b (stopped) does not go on with 'gradient'"));
}

TEST_CASE("Stall inquiry: one at a time, and an answer to a former one is ignored") {
  StalledWorld world;
  world.Report({"gradient"});
  const std::uint32_t first = world.Inquiry(kA);
  world.Report({"other"});
  CHECK(world.Inquiry(kA) == first);
  world.Answer(kA, first);
  world.Answer(kB, first);
  const std::uint32_t second = world.Inquiry(kA);
  world.nodes.Clear();
  CHECK(second != first);
  world.Answer(kA, first);
  world.Answer(kB, first, "stopped", {"gradient"});
  CHECK(world.Verdict(kA).text().empty());
  world.Answer(kA, second);
  world.Answer(kB, second, "running", {"other"});
  CHECK_THAT(world.Verdict(kA).text(), Contains("'other'") && !Contains("gradient"));
}

}  // namespace
}  // namespace ringd
