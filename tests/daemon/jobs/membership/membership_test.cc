#include "daemon/jobs/membership/membership.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <string>

#include "proto/rank_exchange/rank_exchange_segment.h"

namespace ringd {
namespace {

// Ranks 0 to 2 on one node, 3 and 4 on the next, 5 on the last.
Membership Uneven() {
  Membership membership;
  membership.wire_id = 9;
  membership.generation = 2;
  membership.self = NodeIndex(1);
  membership.algorithms.flat_all_reduce_bytes = 1111;
  membership.algorithms.small_all_reduce_bytes = 2222;
  membership.algorithms.small_broadcast_bytes = 3333;
  membership.algorithms.chunk_bytes = 4096;
  int rank = 0;
  for (const int count : {3, 2, 1}) {
    MemberNode& node = membership.nodes.emplace_back();
    node.name = "node-" + std::to_string(membership.nodes.size());
    node.transport_address = "somewhere";
    for (int local = 0; local < count; ++local, ++rank) {
      node.ranks.push_back(MemberRank{Rank(rank), LocalRank(local), 100 + rank, "train.py"});
    }
  }
  return membership;
}

TEST_CASE("Membership: sizes and cross ranks follow the nodes") {
  Membership membership = Uneven();
  CHECK(membership.size() == 6);
  CHECK(membership.node_count() == 3);
  CHECK_FALSE(membership.Homogeneous());
  CHECK(membership.CrossSize(LocalRank(0)) == 3);
  CHECK(membership.CrossSize(LocalRank(1)) == 2);
  CHECK(membership.CrossSize(LocalRank(2)) == 1);
  CHECK(membership.CrossRank(LocalRank(0)) == 1);
  CHECK(membership.CrossRank(LocalRank(1)) == 1);
  CHECK(membership.NodeOf(Rank(2)) == NodeIndex(0));
  CHECK(membership.NodeOf(Rank(5)) == NodeIndex(2));
  CHECK(membership.NodeOf(Rank(6)) == NodeIndex(-1));
  membership.nodes.resize(1);
  CHECK(membership.Homogeneous());
}

TEST_CASE("Membership: a message carries all of it") {
  const auto copy = FromProto(ToProto(Uneven()));
  REQUIRE(copy.ok());
  CHECK(copy->wire_id == 9);
  CHECK(copy->generation == 2);
  CHECK(copy->self == NodeIndex(1));
  CHECK(copy->algorithms.flat_all_reduce_bytes == 1111);
  CHECK(copy->algorithms.small_all_reduce_bytes == 2222);
  CHECK(copy->algorithms.small_broadcast_bytes == 3333);
  CHECK(copy->algorithms.chunk_bytes == 4096);
  REQUIRE(copy->node_count() == 3);
  CHECK(copy->nodes[1].name == "node-2");
  CHECK(copy->nodes[1].transport_address == "somewhere");
  CHECK(copy->nodes[1].ranks[1].rank == Rank(4));
  CHECK(copy->nodes[1].ranks[1].local_rank == LocalRank(1));
  CHECK(copy->nodes[1].ranks[1].pid == 104);
  CHECK(copy->nodes[1].ranks[1].program == "train.py");
}

TEST_CASE("Membership: a message carries how the ring came about, and nonsense of it is left out") {
  Membership membership = Uneven();
  membership.ring.source = RingSource::kMeasured;
  membership.ring.measured_unix_seconds = 1'790'000'000;
  membership.ring.links = LinkMatrix(3);
  membership.ring.links.at(1, 2) = {std::chrono::microseconds(64), 1.25e8};
  v1::Membership message = ToProto(membership);
  auto copy = FromProto(message);
  REQUIRE(copy.ok());
  CHECK(copy->ring.source == RingSource::kMeasured);
  CHECK(copy->ring.measured_unix_seconds == 1'790'000'000);
  REQUIRE(copy->ring.links.node_count() == 3);
  CHECK(copy->ring.links.at(1, 2).latency == std::chrono::microseconds(64));
  CHECK(copy->ring.links.at(1, 2).bytes_per_second == Approx(1.25e8));

  SECTION("too few links") { message.mutable_ring()->mutable_latency_us()->RemoveLast(); }
  SECTION("a negative time") { message.mutable_ring()->set_latency_us(3, -1); }
  SECTION("no number") { message.mutable_ring()->set_gbit_per_second(3, std::nanf("")); }
  copy = FromProto(message);
  REQUIRE(copy.ok());
  CHECK(copy->ring.links.empty());
  CHECK(copy->ring.measured_unix_seconds == 0);
}

TEST_CASE("Membership: a message that makes no sense is refused") {
  v1::Membership message = ToProto(Uneven());
  SECTION("the receiver is none of the nodes") { message.set_node_index(3); }
  SECTION("the receiver's number is negative") { message.set_node_index(-1); }
  SECTION("a rank twice") { message.mutable_nodes(0)->mutable_ranks(1)->set_rank(0); }
  SECTION("a rank beyond the end") { message.mutable_nodes(2)->mutable_ranks(0)->set_rank(6); }
  SECTION("no rank 0") { message.mutable_nodes(0)->mutable_ranks(0)->set_rank(7); }
  SECTION("a negative rank") { message.mutable_nodes(0)->mutable_ranks(0)->set_rank(-1); }
  SECTION("a node without ranks") { message.mutable_nodes(1)->clear_ranks(); }
  SECTION("no nodes") { message.clear_nodes(); }
  SECTION("chunks of nothing") { message.set_chunk_bytes(0); }
  CHECK(FromProto(message).status().code() == absl::StatusCode::kInvalidArgument);
}

// With a rank exchange that makes sense.
Membership Offered() {
  Membership membership = Uneven();
  for (MemberNode& node : membership.nodes) node.rank_exchange_address = "10.0.0.1:4711";
  membership.rank_exchange = {true, 4096, 1024, ""};
  return membership;
}

TEST_CASE("Membership: a message carries the offer of a rank exchange, or why there is none") {
  auto copy = FromProto(ToProto(Offered()));
  REQUIRE(copy.ok());
  CHECK(copy->rank_exchange.offered);
  CHECK(copy->rank_exchange.limit_bytes == 4096);
  CHECK(copy->rank_exchange.flat_bytes == 1024);
  CHECK(copy->rank_exchange.why_not.empty());
  CHECK(copy->nodes[2].rank_exchange_address == "10.0.0.1:4711");

  Membership none = Uneven();
  none.rank_exchange.why_not = std::string(5000, 'x');
  copy = FromProto(ToProto(none));
  REQUIRE(copy.ok());
  CHECK_FALSE(copy->rank_exchange.offered);
  CHECK(copy->rank_exchange.why_not == std::string(512, 'x'));
}

TEST_CASE("Membership: an offer that makes no sense is refused") {
  v1::Membership message = ToProto(Offered());
  REQUIRE(FromProto(message).ok());
  SECTION("a limit of nothing") { message.mutable_rank_exchange()->set_limit_bytes(0); }
  SECTION("a limit past the segment's") {
    message.mutable_rank_exchange()->set_limit_bytes(kRankExchangeMostBytes + 1);
  }
  SECTION("another tree from beyond the limit") {
    message.mutable_rank_exchange()->set_flat_bytes(4097);
  }
  SECTION("another tree of two nodes") { message.mutable_nodes()->RemoveLast(); }
  SECTION("a node without an address") { message.mutable_nodes(1)->clear_rank_exchange_address(); }
  SECTION("an address to be asked for") {
    message.mutable_nodes(1)->set_rank_exchange_address("node-b:4711");
  }
  SECTION("too many nodes") {
    for (int rank = 6; rank < 6 + static_cast<int>(kRankExchangeMostNodes); ++rank) {
      v1::NodeMember& node = *message.add_nodes();
      node.set_rank_exchange_address("10.0.0.1:4711");
      node.add_ranks()->set_rank(rank);
    }
  }
  SECTION("too many ranks of a node") {
    for (int rank = 6; rank < 6 + static_cast<int>(kRankExchangeMostMembers); ++rank) {
      message.mutable_nodes(2)->add_ranks()->set_rank(rank);
    }
  }
  CHECK(FromProto(message).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE(
    "Membership: a program's name from outside has no folder, is bounded, and can be printed") {
  CHECK(PrintableProgram("train.py") == "train.py");
  CHECK(PrintableProgram("/home/me/secret/my train.py") == "my train.py");
  CHECK(PrintableProgram("a\nb\x1b[31m\xd1\x82") == "a?b?[31m??");
  CHECK(PrintableProgram(std::string(1000, 'x')) == std::string(64, 'x'));
  CHECK(PrintableProgram("") == "");

  v1::Membership message = ToProto(Uneven());
  message.mutable_nodes(0)->mutable_ranks(0)->set_program("x/a\n");
  const absl::StatusOr<Membership> membership = FromProto(message);
  REQUIRE(membership.ok());
  CHECK(membership->nodes[0].ranks[0].program == "a?");
}

TEST_CASE("Membership: ranks and nodes are named in one way") {
  const Membership membership = Uneven();
  CHECK(DescribeRank(Rank(3), 4711, "node-b") == "rank 3, pid 4711 on node-b");
  CHECK(DescribeNode(membership.nodes[0]) == "node-1 (ranks 0, 1, 2)");
  CHECK(DescribeNode(membership.nodes[2]) == "node-3 (rank 5)");
  CHECK(DescribeLostNode(membership.nodes[1]) ==
        "ringd on node-2 (ranks 3, 4) ended or lost its connection");
}

}  // namespace
}  // namespace ringd
