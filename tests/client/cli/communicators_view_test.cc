#include <catch2/catch.hpp>
#include <string>

#include "client/cli/views/views.h"
#include "tests/client/cli/two_nodes.h"

namespace ringd::cli {

using Catch::Matchers::Contains;

TEST_CASE("RenderCommunicators: shows the ring, and cuts a long one short") {
  v1::CommunicatorsReply reply = TwoNodes();
  CHECK_THAT(RenderCommunicators(reply, {}), !Contains("ring  "));
  for (const char* node : {"node-0", "node-1", "node-2"}) {
    reply.mutable_communicators(0)->add_ring(node);
  }
  CHECK_THAT(RenderCommunicators(reply, {}), Contains("node-0 > node-1 > node-2 > node-0\n"));
  for (int node = 3; node < 40; ++node) {
    reply.mutable_communicators(0)->add_ring("node-" + std::to_string(node));
  }
  CHECK_THAT(RenderCommunicators(reply, {}), Contains("node-11 > 28 more > node-0\n"));
}

TEST_CASE("RenderCommunicators: of ranks on one node, nothing that is about other nodes") {
  v1::CommunicatorsReply reply = TwoNodes();
  v1::Communicator& communicator = *reply.mutable_communicators(0);
  CHECK_THAT(RenderCommunicators(reply, {}), Contains("negotiation") && Contains("schedule"));
  communicator.set_node_count(1);
  communicator.set_busy_share(0);
  communicator.set_bytes_sent(0);
  communicator.set_negotiation_messages(0);
  communicator.set_learned_buckets(0);
  CHECK_THAT(RenderCommunicators(reply, {}),
             Contains("on the wire     nothing: all ranks are on this node\n") &&
                 !Contains("busy") && !Contains("negotiation") && !Contains("learned"));
  // Tensors on a GPU go through the engine there, too.
  communicator.set_negotiation_messages(3);
  communicator.set_busy_share(0.5);
  CHECK_THAT(RenderCommunicators(reply, {}), Contains("3 messages") && Contains("busy 50 %"));
}

TEST_CASE("RenderCommunicators: of ranks on one node, how they get at ordinary memory") {
  v1::CommunicatorsReply reply = TwoNodes();
  CHECK_THAT(RenderCommunicators(reply, {}), !Contains("outside arena"));
  reply.mutable_communicators(0)->set_ordinary_memory("read directly");
  CHECK_THAT(RenderCommunicators(reply, {}), Contains("outside arena   read directly\n"));
}

TEST_CASE(
    "RenderCommunicators: of ranks on several nodes, their rank exchange, or why there is none") {
  v1::CommunicatorsReply reply = TwoNodes();
  CHECK_THAT(RenderCommunicators(reply, {}), !Contains("rank exchange"));
  v1::RankExchange& path = *reply.mutable_communicators(0)->mutable_rank_exchange();
  path.set_why_not("ringd on node-b takes no part");
  CHECK_THAT(RenderCommunicators(reply, {}),
             Contains("rank exchange   none: ringd on node-b takes no part\n"));
  path.set_limit_bytes(8192);
  path.set_completed(1);
  path.set_given_up(2);
  CHECK_THAT(RenderCommunicators(reply, {}),
             Contains("none: ringd on node-b takes no part; 1 operation, 2 given up\n"));
  path.clear_why_not();
  path.set_open(true);
  CHECK_THAT(RenderCommunicators(reply, {}),
             Contains("rank exchange   up to 8 KiB; 1 operation, 2 given up\n"));
  path.set_flat_bytes(8192);
  CHECK_THAT(RenderCommunicators(reply, {}),
             Contains("rank exchange   up to 8 KiB; 1 operation, 2 given up\n"));
  path.set_flat_bytes(2500);
  CHECK_THAT(
      RenderCommunicators(reply, {}),
      Contains("rank exchange   up to 8 KiB, by a tree of nodes from 2.4 KiB on; 1 operation"));
}

TEST_CASE("RenderCommunicators: shows members, links, bytes and rates") {
  const std::string text = RenderCommunicators(TwoNodes(), {});
  CHECK_THAT(text, Contains("job run-1, world (communicator 1, generation 0): running\n"));
  CHECK_THAT(text, Contains("4 ranks on 2 nodes; this is node 0, coordinator node-0"));
  CHECK_THAT(text, Contains("3 MiB in 56 operations, 1,234 tensors submitted"));
  CHECK_THAT(text, Contains("1.5 GiB/s, 12 operations/s, busy 37 %"));
  CHECK_THAT(text, Contains("   3      1     1  node-1  4003  running\n"));
  CHECK_THAT(text,
             Contains("      1  node-1  tcp/lo                3         2  one was refused\n"));
  CHECK_THAT(text, !Contains("BUCKET"));
}

}  // namespace ringd::cli
