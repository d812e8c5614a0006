#include <catch2/catch.hpp>
#include <string>
#include <utility>

#include "tests/daemon/jobs/coordinator/recorded_nodes.h"

namespace ringd {
namespace {

v1::NodeMessage IdOf(const std::string& id) {
  v1::NodeMessage message;
  message.mutable_device_id()->set_unique_id(id);
  return message;
}

std::string ReceivedBy(JoinedNodes& world, int node) {
  return world.nodes
      .Last(JoinedNodes::LinkOf(node), &v1::CoordinatorMessage::has_device_id,
            &v1::CoordinatorMessage::device_id)
      .unique_id();
}

}  // namespace

TEST_CASE("JobCoordinator: all nodes get the id of the GPUs' communicator, and only the first") {
  JoinedNodes world(OptionsOf(2));
  const std::string id(128, 'a');
  world.coordinator.OnMessage(JoinedNodes::LinkOf(0), IdOf(id), world.now);
  CHECK(ReceivedBy(world, 0) == id);
  CHECK(ReceivedBy(world, 1) == id);
  world.coordinator.OnMessage(JoinedNodes::LinkOf(1), IdOf(std::string(128, 'b')), world.now);
  CHECK(ReceivedBy(world, 0) == id);
  CHECK(ReceivedBy(world, 1) == id);
}

TEST_CASE("JobCoordinator: ranks register memory if all of them have told that they can") {
  const auto told = [](JoinedNodes& world, int node, bool registers) {
    v1::NodeMessage message;
    message.mutable_rank_device()->set_rank(node);
    message.mutable_rank_device()->set_registers(registers);
    world.coordinator.OnMessage(JoinedNodes::LinkOf(node), message, world.now);
  };
  for (const int who : {0, 1, 2, 3}) {
    JoinedNodes world(OptionsOf(2));
    told(world, 0, true);
    if (who > 0) told(world, 1, who > 1);
    if (who == 3) told(world, 0, false);
    v1::NodeMessage message = IdOf(std::string(128, 'a'));
    message.mutable_device_id()->set_registers(true);  // which is the coordinator's to say
    world.coordinator.OnMessage(JoinedNodes::LinkOf(0), message, world.now);
    for (const int node : {0, 1}) {
      CHECK(world.nodes
                .Last(JoinedNodes::LinkOf(node), &v1::CoordinatorMessage::has_device_id,
                      &v1::CoordinatorMessage::device_id)
                .registers() == (who == 2));
    }
  }
}

TEST_CASE("JobCoordinator: what is no id of NCCL's breaks the protocol") {
  JoinedNodes world(OptionsOf(2));
  world.coordinator.OnMessage(JoinedNodes::LinkOf(1), IdOf("short"), world.now);
  const std::vector<std::string> failures = world.nodes.FailuresOf(JoinedNodes::LinkOf(0));
  REQUIRE(failures.size() == 1);
  CHECK_THAT(failures.front(), Catch::Contains("node1") && Catch::Contains("protocol"));
}

TEST_CASE(
    "JobCoordinator: all nodes hear how a rank uses its GPU, from the rank's own node alone") {
  JoinedNodes world(OptionsOf(2));
  v1::NodeMessage message;
  message.mutable_rank_device()->set_rank(1);
  message.mutable_rank_device()->set_goes_by_host(true);
  message.mutable_rank_device()->set_why("NCCL is missing");
  world.coordinator.OnMessage(JoinedNodes::LinkOf(1), message, world.now);
  for (const int node : {0, 1}) {
    const v1::RankDevice heard =
        world.nodes.Last(JoinedNodes::LinkOf(node), &v1::CoordinatorMessage::has_rank_device,
                         &v1::CoordinatorMessage::rank_device);
    CHECK(heard.rank() == 1);
    CHECK(heard.goes_by_host());
    CHECK(heard.why() == "NCCL is missing");
  }
  CHECK(world.nodes.FailuresOf(JoinedNodes::LinkOf(0)).empty());
  world.coordinator.OnMessage(JoinedNodes::LinkOf(0), message, world.now);
  const std::vector<std::string> failures = world.nodes.FailuresOf(JoinedNodes::LinkOf(1));
  REQUIRE(failures.size() == 1);
  CHECK_THAT(failures.front(), Catch::Contains("node0") && Catch::Contains("protocol"));
}

TEST_CASE("JobCoordinator: what a rank has kept of an earlier job is told to all, and bounded") {
  const auto word = [](int count, std::size_t id_bytes) {
    v1::NodeMessage message;
    message.mutable_rank_device()->set_rank(1);
    for (int i = 0; i < count; ++i) {
      message.mutable_rank_device()->add_kept()->set_unique_id(std::string(id_bytes, 'k'));
    }
    return message;
  };
  for (const auto& [count, id_bytes] : {std::pair(16, 128), {17, 128}, {1, 127}}) {
    JoinedNodes world(OptionsOf(2));
    world.coordinator.OnMessage(JoinedNodes::LinkOf(1), word(count, id_bytes), world.now);
    const v1::RankDevice heard =
        world.nodes.Last(JoinedNodes::LinkOf(0), &v1::CoordinatorMessage::has_rank_device,
                         &v1::CoordinatorMessage::rank_device);
    const bool is_right = count <= 16 && id_bytes == 128;
    CHECK(heard.kept_size() == (is_right ? count : 0));
    CHECK(world.nodes.FailuresOf(JoinedNodes::LinkOf(0)).empty() == is_right);
  }
}

}  // namespace ringd
