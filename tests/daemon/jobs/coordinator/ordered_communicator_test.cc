// A communicator that is matched by order, and what a node may say of its operations.
#include <catch2/catch.hpp>
#include <string>

#include "daemon/jobs/coordinator/job_coordinator.h"
#include "tests/daemon/jobs/coordinator/recorded_nodes.h"

namespace ringd {
namespace {

using Catch::Matchers::Contains;

struct World : JoinedNodes {
  World() : JoinedNodes(OptionsOf(2)) {
    for (int rank = 0; rank < size; ++rank) {
      v1::NodeMessage message;
      v1::CommunicatorAsk& ask = *message.mutable_communicator_ask();
      ask.set_rank(rank);
      ask.set_name("pair");
      ask.set_timeout_ms(1000);
      ask.set_by_order(true);
      for (const int member : {0, 1}) ask.add_ranks(member);
      coordinator.OnMessage(LinkOf(rank), message, now);
    }
    const std::vector<v1::CoordinatorMessage>& told = nodes.To(LinkOf(0));
    REQUIRE(told.back().has_communicator_made());
    number = told.back().communicator();
    nodes.Clear();
  }

  void Announce(int node, const std::string& name) {
    v1::NodeMessage message;
    message.set_communicator(number);
    v1::ReadyTensor& tensor = *message.mutable_ready()->add_tensors();
    tensor.set_name(name);
    tensor.add_reports()->mutable_meta();
    coordinator.OnMessage(LinkOf(node), message, now);
  }
  int Inquiries(int node) {
    int inquiries = 0;
    for (const v1::CoordinatorMessage& message : nodes.To(LinkOf(node))) {
      if (message.has_order_inquiry()) inquiries += message.order_inquiry().operations_size();
    }
    return inquiries;
  }

  std::uint32_t number = 0;
};

TEST_CASE("JobCoordinator: of an operation that does not fit all nodes are asked once") {
  World world;
  world.Announce(0, "operation 3");
  world.Announce(1, "operation 3");
  for (const int node : {0, 1}) CHECK(world.Inquiries(node) == 1);
  // The next one in its place.
  world.Announce(1, "operation 67");
  for (const int node : {0, 1}) CHECK(world.Inquiries(node) == 2);
}

TEST_CASE("JobCoordinator: a node that announces what is no operation is named, and nobody else") {
  World world;
  world.Announce(1, "foo");
  for (const int node : {0, 1}) {
    const std::vector<std::string> failures = world.nodes.FailuresOf(JoinedNodes::LinkOf(node));
    REQUIRE(failures.size() == 1);
    CHECK_THAT(failures[0], Contains("ringd on node1 broke the protocol") && Contains("'foo'"));
    CHECK(world.Inquiries(node) == 0);
  }
}

}  // namespace
}  // namespace ringd
