// What a job says to its coordinator first, and what it makes of there being none.
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "daemon/jobs/membership/protocol_version.h"
#include "tests/daemon/jobs/joining_node.h"

namespace ringd {
namespace {

using Catch::Matchers::Contains;

TEST_CASE("Job: says which job it is, and which protocol it speaks, before anything else") {
  JoiningNode world(/*local_size=*/2);
  REQUIRE(world.sent.size() == 2);
  REQUIRE(world.sent[0].has_hello());
  CHECK(world.sent[0].hello().protocol_version() == kPeerProtocolVersion);
  CHECK(world.sent[0].hello().job_id() == "train");
  CHECK(world.sent[0].hello().node_name() == "node-b");
}

TEST_CASE("Job: says the same again if its coordinator turns out to be here") {
  JoiningNode world(/*local_size=*/2);
  std::vector<v1::NodeMessage> inside;
  world.job->CoordinateHere(4);
  world.job->UseLink(std::make_unique<RecordingLink>(inside));
  REQUIRE(inside.size() == 2);
  CHECK(inside[1].has_rank_joined());
  CHECK(inside[0].SerializeAsString() == world.sent[0].SerializeAsString());
  CHECK(world.job->options().coordinates_here);
}

TEST_CASE(
    "Job: one that finds no coordinator says of whom it is, what was tried, and who is here") {
  JoiningNode world(/*local_size=*/2);
  world.job->OnLinkLost(absl::DeadlineExceededError("no connection to ringd at 10.0.0.9:7117"));
  REQUIRE(world.job->state() == Job::State::kFailed);
  CHECK(absl::IsDeadlineExceeded(world.job->failure()));
  CHECK_THAT(std::string(world.job->failure().message()),
             Contains("job 'train' of uid 1000 could not start in time") &&
                 Contains("no connection to ringd at 10.0.0.9:7117") &&
                 Contains("on node-b 1 of 2 local ranks joined"));
}

TEST_CASE("Job: one that is refused passes on why, and the kind of the error") {
  JoiningNode world(/*local_size=*/2);
  world.job->OnLinkLost(absl::UnauthenticatedError("ringd on node-a refuses the key"));
  REQUIRE(world.job->state() == Job::State::kFailed);
  CHECK(absl::IsUnauthenticated(world.job->failure()));
  CHECK_THAT(std::string(world.job->failure().message()),
             Contains("job 'train' can't be joined: ringd on node-a refuses the key"));
}

}  // namespace
}  // namespace ringd
