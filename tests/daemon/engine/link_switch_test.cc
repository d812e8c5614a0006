#include "daemon/engine/link_switch.h"

#include <catch2/catch.hpp>
#include <memory>

#include "daemon/jobs/membership/protocol_version.h"
#include "tests/daemon/engine/fake_peer_network.h"

namespace ringd {
namespace {

// One job of two ranks on this node, and its coordinator here or elsewhere.
struct World {
  World() : links(&network) {
    Job::Options job_options;
    job_options.job_id = "job";
    job_options.size = 2;
    job_options.local_size = 2;
    job_options.node_name = "node-a";
    job_options.start_timeout = std::chrono::seconds(10);
    job = std::make_unique<Job>(job_options, nullptr, begin);
    JobCoordinator::Options options;
    options.job_id = "job";
    options.size = 2;
    options.start_timeout = std::chrono::seconds(10);
    coordinator = std::make_unique<JobCoordinator>(options, &links, begin);
  }

  const Clock::time_point begin = Clock::now();
  FakePeerNetwork network;
  LinkSwitch links;
  std::unique_ptr<Job> job;
  std::unique_ptr<JobCoordinator> coordinator;
};

TEST_CASE("LinkSwitch: inside the process both ways are queued until they are delivered") {
  World world;
  world.job->UseLink(world.links.LinkInside(world.job.get(), world.coordinator.get()));
  CHECK_FALSE(world.links.empty());
  world.coordinator->Fail(absl::AbortedError("failed before anybody came"));
  CHECK(world.links.Deliver(world.begin));
  // The late node has been told why, at once, in the same delivery.
  CHECK(world.links.empty());
  CHECK(world.job->state() == Job::State::kFailed);
  CHECK(world.job->failure() == absl::AbortedError("failed before anybody came"));
  CHECK_FALSE(world.links.Deliver(world.begin));
}

TEST_CASE("LinkSwitch: knows a job's coordinator in the process, whatever its state") {
  World world;
  CHECK(world.links.CoordinatorOf(*world.job) == nullptr);
  world.job->UseLink(world.links.LinkInside(world.job.get(), world.coordinator.get()));
  CHECK(world.links.CoordinatorOf(*world.job) == world.coordinator.get());
  world.coordinator->Fail(absl::AbortedError("cause"));
  CHECK(world.links.CoordinatorOf(*world.job) == world.coordinator.get());
  world.links.Forget(world.coordinator.get());
  CHECK(world.links.CoordinatorOf(*world.job) == nullptr);
}

TEST_CASE("LinkSwitch: a job's failure reaches the coordinator inside the process") {
  World world;
  world.job->UseLink(world.links.LinkInside(world.job.get(), world.coordinator.get()));
  world.links.Deliver(world.begin);
  CHECK(world.coordinator->Open());
  world.job->Fail(absl::AbortedError("cause"));
  CHECK(world.coordinator->Open());
  world.links.Deliver(world.begin);
  CHECK_FALSE(world.coordinator->Open());
}

TEST_CASE("LinkSwitch: when a job is forgotten its coordinator hears that the node has gone") {
  World world;
  world.job->UseLink(world.links.LinkInside(world.job.get(), world.coordinator.get()));
  world.links.Deliver(world.begin);
  CHECK_FALSE(world.coordinator->Finished());
  world.links.Forget(world.job.get());
  CHECK(world.coordinator->Finished());
  // What was still on its way to either is dropped.
  world.job->Fail(absl::AbortedError("cause"));
  world.job.reset();
  world.links.Forget(world.coordinator.get());
  world.coordinator.reset();
  world.links.Deliver(world.begin);
  CHECK(world.links.empty());
}

TEST_CASE("LinkSwitch: a job whose coordinator is elsewhere is linked through the network") {
  World world;
  world.job->UseLink(
      world.links.LinkOutside(world.job.get(), {"node-b:7117", "job", 0, {}, false}, world.begin));
  REQUIRE(world.network.connected.size() == 1);
  CHECK(world.network.connected[0].host_port == "node-b:7117");
  const StreamId stream(1);
  CHECK(world.links.JobOf(stream) == world.job.get());
  REQUIRE(world.network.to_coordinators[stream].size() == 1);
  CHECK(world.network.to_coordinators[stream][0].hello().node_name() == "node-a");
  CHECK(world.network.to_coordinators[stream][0].hello().protocol_version() ==
        kPeerProtocolVersion);

  world.links.Forget(world.job.get());
  CHECK(world.network.closed.at(stream).ok());
  CHECK(world.links.JobOf(stream) == nullptr);
}

TEST_CASE("LinkSwitch: a stranger is introduced to a coordinator, or turned away with the reason") {
  World world;
  const StreamId stream(5);
  world.links.AddStranger(stream, {ExpectationId(1), "node-b at 10.0.0.2 port 1234", world.begin});
  REQUIRE(world.links.FindStranger(stream) != nullptr);
  CHECK(world.links.FindStranger(StreamId(6)) == nullptr);
  CHECK(world.links.CoordinatorOf(stream) == nullptr);

  SECTION("introduced") {
    world.links.Introduce(stream, world.coordinator.get());
    CHECK(world.links.FindStranger(stream) == nullptr);
    CHECK(world.links.CoordinatorOf(stream) == world.coordinator.get());
    world.links.SendToNode(stream, v1::CoordinatorMessage());
    CHECK(world.network.to_nodes[stream].size() == 1);
    SECTION("until the stream ends") {
      world.links.OnStreamEnded(stream);
      CHECK(world.links.CoordinatorOf(stream) == nullptr);
    }
    SECTION("until the coordinator closes it") {
      world.links.CloseNode(stream, absl::AbortedError("enough"));
      CHECK(world.network.closed.at(stream) == absl::AbortedError("enough"));
      CHECK(world.links.CoordinatorOf(stream) == nullptr);
    }
    SECTION("until the coordinator goes") {
      world.links.Forget(world.coordinator.get());
      CHECK(world.network.closed.count(stream) == 1);
      CHECK(world.links.CoordinatorOf(stream) == nullptr);
    }
  }
  SECTION("turned away") {
    world.links.TurnAway(stream, absl::UnauthenticatedError("another secret"));
    REQUIRE(world.network.to_nodes[stream].size() == 1);
    CHECK(world.network.to_nodes[stream][0].failure().text() == "another secret");
    CHECK(world.network.to_nodes[stream][0].failure().code() ==
          static_cast<int>(absl::StatusCode::kUnauthenticated));
    CHECK(world.network.closed.count(stream) == 1);
    CHECK(world.links.FindStranger(stream) == nullptr);
  }
}

}  // namespace
}  // namespace ringd
