#include "daemon/jobs/coordinator/job_coordinator.h"

#include <catch2/catch.hpp>

#include "tests/daemon/jobs/coordinator/recorded_nodes.h"

namespace ringd {
namespace {

using Catch::Matchers::Contains;

const LinkId kA(1);
const LinkId kB(2);
const LinkId kC(3);
constexpr std::chrono::seconds kSecond{1};

struct World {
  explicit World(int size) : coordinator(OptionsOf(size), &nodes, begin) {}

  void AddNode(LinkId link, const std::string& name, int size, int local_size) {
    coordinator.AddNode(link, HelloOf(name, size, local_size), begin);
  }
  void Join(LinkId link, int rank, int local_rank) {
    coordinator.OnMessage(link, RankJoinedOf(rank, local_rank, 100 + rank), begin);
  }
  v1::Membership MembershipOf(LinkId link) {
    return nodes.Last(link, &v1::CoordinatorMessage::has_membership,
                      &v1::CoordinatorMessage::membership);
  }
  // The one failure that all of `links` have heard.
  std::string Failure(const std::vector<LinkId>& links) {
    for (const LinkId link : links) {
      const auto texts = nodes.FailuresOf(link);
      CAPTURE(link.value());
      REQUIRE(texts.size() == 1);
      REQUIRE(texts == nodes.FailuresOf(links.front()));
    }
    return nodes.FailuresOf(links.front()).front();
  }

  const Clock::time_point begin = Clock::now();
  RecordedNodes nodes;
  JobCoordinator coordinator;
};

// Two nodes of two ranks each that have started.
struct RunningWorld : World {
  RunningWorld() : World(4) {
    AddNode(kA, "node-a", 4, 2);
    AddNode(kB, "node-b", 4, 2);
    Join(kA, 0, 0);
    Join(kB, 2, 0);
    Join(kB, 3, 1);
    Join(kA, 1, 1);
  }
};

TEST_CASE("JobCoordinator: the membership goes out once the last rank has joined") {
  World world(3);
  // The node of rank 0 comes last and is node 0 all the same; ranks come in any order.
  world.AddNode(kB, "node-b", 3, 1);
  world.Join(kB, 2, 0);
  world.AddNode(kA, "node-a", 3, 2);
  world.Join(kA, 1, 1);
  CHECK(world.nodes.To(kA).empty());
  CHECK(world.coordinator.Open());
  CHECK(world.coordinator.MissingRanks() == std::vector<int>{0});

  world.Join(kA, 0, 0);
  CHECK_FALSE(world.coordinator.Open());
  const v1::Membership at_a = world.MembershipOf(kA);
  const v1::Membership at_b = world.MembershipOf(kB);
  CHECK(at_a.node_index() == 0);
  CHECK(at_b.node_index() == 1);
  CHECK(at_a.wire_id() == 77);
  CHECK(at_a.generation() == 3);
  REQUIRE(at_b.nodes_size() == 2);
  CHECK(at_b.nodes(0).node_name() == "node-a");
  CHECK(at_b.nodes(0).transport_address() == "address of node-a");
  REQUIRE(at_b.nodes(0).ranks_size() == 2);
  CHECK(at_b.nodes(0).ranks(0).rank() == 0);
  CHECK(at_b.nodes(0).ranks(1).rank() == 1);
  CHECK(at_b.nodes(1).ranks(0).pid() == 102);
  CHECK(at_b.nodes(1).ranks(0).program() == "train.py");
}

TEST_CASE("JobCoordinator: tells all nodes who is missing, as it changes and not too often") {
  constexpr int kSize = 200;
  World world(kSize);
  world.AddNode(kA, "node-a", kSize, 2);
  world.AddNode(kB, "node-b", kSize, 1);
  const auto told = [&](LinkId link) {
    return world.nodes.Last(link, &v1::CoordinatorMessage::has_gathering,
                            &v1::CoordinatorMessage::gathering);
  };
  world.Join(kA, 0, 0);
  world.coordinator.Advance(world.begin);
  for (const LinkId link : {kA, kB}) {
    REQUIRE(told(link).missing_ranks_size() == 64);
    CHECK(told(link).missing_ranks(0) == 1);
    CHECK(told(link).missing_left_out() == kSize - 1 - 64);
  }
  world.Join(kA, 1, 1);
  world.coordinator.Advance(world.begin + std::chrono::milliseconds(100));
  CHECK(told(kB).missing_ranks(0) == 1);
  world.coordinator.Advance(world.begin + std::chrono::milliseconds(600));
  CHECK(told(kB).missing_ranks(0) == 2);
  const std::size_t messages = world.nodes.To(kB).size();
  world.coordinator.Advance(world.begin + std::chrono::milliseconds(2000));
  CHECK(world.nodes.To(kB).size() == messages);
}

TEST_CASE("JobCoordinator: two claims of one rank end the start for all, naming both processes") {
  World world(3);
  world.AddNode(kA, "node-a", 3, 2);
  world.AddNode(kB, "node-b", 3, 1);
  world.Join(kA, 0, 0);
  world.coordinator.OnMessage(kB, RankJoinedOf(0, 0, 999), world.begin);
  const std::string text = world.Failure({kA, kB});
  CHECK_THAT(text, Contains("two processes claim rank 0 of job 'job'"));
  CHECK_THAT(text, Contains("pid 100 on node-a"));
  CHECK_THAT(text, Contains("pid 999 on node-b"));
}

TEST_CASE("JobCoordinator: another weight ends the start for all, naming both weights") {
  World world(3);
  v1::Hello first = HelloOf("node-a", 3, 2);
  first.set_weight(1);  // says the default
  world.coordinator.AddNode(kA, first, world.begin);
  world.Join(kA, 0, 0);
  v1::Hello second = HelloOf("node-b", 3, 1);
  second.set_weight(3);
  world.coordinator.AddNode(kB, second, world.begin);
  const std::string text = world.Failure({kA, kB});
  CHECK_THAT(text, Contains("node-b say weight 3"));
  CHECK_THAT(text, Contains("node-a (rank 0) said 1"));
}

TEST_CASE("JobCoordinator: another size ends the start for all, naming both sizes") {
  World world(3);
  world.AddNode(kA, "node-a", 3, 2);
  world.Join(kA, 0, 0);
  world.AddNode(kB, "node-b", 5, 1);
  const std::string text = world.Failure({kA, kB});
  CHECK_THAT(text, Contains("node-b say size 5"));
  CHECK_THAT(text, Contains("node-a (rank 0) said 3"));

  // Whoever comes now hears the same, at once.
  world.AddNode(kC, "node-c", 3, 1);
  CHECK(world.Failure({kC}) == text);
  CHECK(world.nodes.Closed(kC));
}

TEST_CASE(
    "JobCoordinator: the start deadline lists missing ranks, present ones and who was turned "
    "away") {
  World world(5);
  world.AddNode(kA, "node-a", 5, 2);
  world.AddNode(kB, "node-b", 5, 3);
  world.Join(kA, 0, 0);
  world.Join(kB, 3, 1);
  SECTION("nobody was turned away") {
    world.coordinator.Advance(world.begin + 10 * kSecond - std::chrono::milliseconds(1));
    CHECK(world.nodes.FailuresOf(kA).empty());
    world.coordinator.Advance(world.begin + 10 * kSecond);
    const std::string text = world.Failure({kA, kB});
    CHECK_THAT(text, Contains("job 'job' could not start within 10 s"));
    CHECK_THAT(text, Contains("ranks 1, 2, 4 did not join"));
    CHECK_THAT(text, Contains("present: node-a (rank 0), node-b (rank 3)"));
    CHECK_THAT(text, !Contains("turned away"));
  }
  SECTION("some were, and only the first few are named") {
    for (int i = 0; i < 100; ++i) world.coordinator.NoteTurnedAway("reason " + std::to_string(i));
    world.coordinator.Advance(world.begin + 10 * kSecond);
    const std::string text = world.Failure({kA, kB});
    CHECK_THAT(text, Contains("turned away: reason 0; reason 1"));
    CHECK_THAT(text, !Contains("reason 50"));
  }
  SECTION("one of them again and again") {
    for (int i = 0; i < 100; ++i) world.coordinator.NoteTurnedAway("the same reason");
    world.coordinator.NoteTurnedAway("another");
    world.coordinator.Advance(world.begin + 10 * kSecond);
    CHECK_THAT(world.Failure({kA, kB}), Contains("turned away: the same reason; another"));
  }
  // It ends once: what comes later changes nothing.
  world.coordinator.Advance(world.begin + 20 * kSecond);
  world.coordinator.Fail(absl::AbortedError("later"));
  CHECK(world.nodes.FailuresOf(kA).size() == 1);
}

TEST_CASE(
    "JobCoordinator: of a large job why ranks were turned away is told, not all their numbers") {
  World world(4096);
  world.AddNode(kA, "node-a", 4096, 8);
  world.Join(kA, 0, 0);
  world.coordinator.NoteTurnedAway("the keys differ");
  world.coordinator.Advance(world.begin + 10 * kSecond);
  const std::string text = world.Failure({kA});
  CHECK_THAT(text, Contains("15, 16 and 4079 more did not join"));
  CHECK_THAT(text, Contains("turned away: the keys differ"));
}

TEST_CASE("JobCoordinator: the most patient node sets the start deadline") {
  World world(2);
  world.AddNode(kA, "node-a", 2, 1);
  v1::Hello patient = HelloOf("node-b", 2, 1);
  patient.set_start_timeout_ms(60'000);
  world.coordinator.AddNode(kB, patient, world.begin);
  world.coordinator.Advance(world.begin + 59 * kSecond);
  CHECK(world.nodes.FailuresOf(kA).empty());
  world.coordinator.Advance(world.begin + 60 * kSecond);
  CHECK_FALSE(world.nodes.FailuresOf(kA).empty());
}

TEST_CASE("JobCoordinator: a node lost before the start ends it at once, named with its ranks") {
  World world(4);
  world.AddNode(kA, "node-a", 4, 2);
  world.Join(kA, 0, 0);
  world.AddNode(kB, "node-b", 4, 2);
  world.Join(kB, 2, 0);
  SECTION("its connection has gone") {
    world.coordinator.OnLinkLost(kB, absl::UnavailableError("reset"));
    CHECK(world.Failure({kA}) ==
          "ringd on node-b (rank 2) ended or lost its connection before all ranks had joined");
  }
  SECTION("it says why") {
    world.coordinator.OnLinkLost(kB, absl::CancelledError("this ringd is shutting down"));
    CHECK(world.Failure({kA}) ==
          "ringd on node-b (rank 2) has gone before all ranks had joined: this ringd is shutting "
          "down");
  }
  CHECK_FALSE(world.coordinator.Open());
}

TEST_CASE("JobCoordinator: a node lost before any of its ranks has joined may come back") {
  World world(2);
  world.AddNode(kA, "node-a", 2, 1);
  world.Join(kA, 0, 0);
  world.AddNode(kB, "node-b", 2, 1);
  world.coordinator.OnLinkLost(kB, absl::UnavailableError("reset"));
  CHECK(world.coordinator.MissingRanks() == std::vector<int>{1});
  CHECK(world.nodes.FailuresOf(kA).empty());
  world.AddNode(kC, "node-b", 2, 1);
  world.Join(kC, 1, 0);
  CHECK(world.MembershipOf(kA).nodes_size() == 2);
}

TEST_CASE("JobCoordinator: when every node has gone before the start it is finished") {
  World world(2);
  world.AddNode(kA, "node-a", 2, 1);
  CHECK_FALSE(world.coordinator.Finished());
  world.coordinator.OnLinkLost(kA, absl::OkStatus());
  CHECK(world.coordinator.Finished());
}

TEST_CASE("JobCoordinator: a lost node fails the running job, named with its ranks") {
  RunningWorld world;
  world.coordinator.OnLinkLost(kB, absl::UnavailableError("connection reset"));
  CHECK(world.Failure({kA}) == "ringd on node-b (ranks 2, 3) ended or lost its connection");
  CHECK(world.nodes.To(kA).back().failure().node_lost());
  CHECK(world.nodes.FailuresOf(kB).empty());
}

TEST_CASE("JobCoordinator: a node that closes its stream with a reason is quoted") {
  RunningWorld world;
  world.coordinator.OnLinkLost(kB, absl::CancelledError("this ringd is shutting down"));
  CHECK(world.Failure({kA}) ==
        "ringd on node-b (ranks 2, 3) has gone: this ringd is shutting down");
  CHECK_FALSE(world.nodes.To(kA).back().failure().node_lost());
}

TEST_CASE("JobCoordinator: the first failure is the one that all nodes hear") {
  RunningWorld world;
  v1::NodeMessage message;
  message.mutable_failure()->set_code(static_cast<int>(absl::StatusCode::kAborted));
  message.mutable_failure()->set_text("rank 3 was killed");
  world.coordinator.OnMessage(kB, message, world.begin);
  message.mutable_failure()->set_text("a consequence");
  world.coordinator.OnMessage(kA, message, world.begin);
  CHECK(world.Failure({kA, kB}) == "rank 3 was killed");
}

TEST_CASE("JobCoordinator: ranks that left are told to the other nodes, and their node may go") {
  RunningWorld world;
  world.nodes.Clear();
  v1::NodeMessage message;
  message.mutable_ranks_left()->add_ranks(2);
  world.coordinator.OnMessage(kB, message, world.begin);
  REQUIRE(world.nodes.To(kA).size() == 1);
  CHECK(world.nodes.To(kA).front().ranks_left().ranks(0) == 2);
  CHECK(world.nodes.To(kB).empty());

  SECTION("after its last rank") {
    message.mutable_ranks_left()->set_ranks(0, 3);
    world.coordinator.OnMessage(kB, message, world.begin);
    world.coordinator.OnLinkLost(kB, absl::OkStatus());
    CHECK(world.nodes.FailuresOf(kA).empty());
  }
  SECTION("but not before") {
    world.coordinator.OnLinkLost(kB, absl::UnavailableError("reset"));
    CHECK_THAT(world.Failure({kA}), Contains("node-b"));
  }
}

TEST_CASE(
    "JobCoordinator: a node that says that others' ranks have left ends the job with its name") {
  RunningWorld world;
  v1::NodeMessage message;
  SECTION("another's") { message.mutable_ranks_left()->add_ranks(0); }
  SECTION("nobody's") { message.mutable_ranks_left()->add_ranks(-1); }
  SECTION("twice") {
    for (int i = 0; i < 2; ++i) message.mutable_ranks_left()->add_ranks(2);
  }
  world.coordinator.OnMessage(kB, message, world.begin);
  CHECK_THAT(world.Failure({kA, kB}), Contains("ringd on node-b broke the protocol"));
}

TEST_CASE(
    "JobCoordinator: a node whose own start deadline has passed makes it tell who is missing") {
  World world(3);
  world.AddNode(kA, "node-a", 3, 2);
  world.Join(kA, 0, 0);
  v1::Hello hello = HelloOf("node-b", 3, 1);
  hello.set_start_timeout_ms(7000);
  world.coordinator.AddNode(kB, hello, world.begin);
  world.Join(kB, 2, 0);
  v1::NodeMessage message;
  message.mutable_failure()->set_code(static_cast<int>(absl::StatusCode::kDeadlineExceeded));
  message.mutable_failure()->set_text("its own words");
  world.coordinator.OnMessage(kB, message, world.begin + kSecond);
  const std::string text = world.Failure({kA, kB});
  CHECK_THAT(text, Contains("could not start within 7 s: rank 1 did not join; present: node-a"));
}

TEST_CASE("JobCoordinator: whoever comes after the start is turned away alone") {
  RunningWorld world;
  world.AddNode(kC, "node-c", 4, 1);
  CHECK_THAT(world.Failure({kC}), Contains("job 'job' has started without node-c"));
  CHECK(world.nodes.Closed(kC));
  CHECK(world.nodes.FailuresOf(kA).empty());
}

TEST_CASE("JobCoordinator: a node that speaks out of turn ends the job with its name") {
  World world(2);
  world.AddNode(kA, "node-a", 2, 1);
  v1::NodeMessage message;
  message.mutable_ready()->add_tensors()->set_name("tensor");
  world.coordinator.OnMessage(kA, message, world.begin);
  CHECK_THAT(world.Failure({kA}), Contains("ringd on node-a broke the protocol"));
}

}  // namespace
}  // namespace ringd
