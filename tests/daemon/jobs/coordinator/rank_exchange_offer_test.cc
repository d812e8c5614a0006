// When the coordinator offers a rank exchange, and which tensors are small enough for it.
#include <catch2/catch.hpp>
#include <chrono>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "daemon/jobs/coordinator/job_coordinator.h"
#include "proto/rank_exchange/rank_exchange_segment.h"
#include "tests/daemon/jobs/coordinator/recorded_nodes.h"

namespace ringd {
namespace {

using Catch::Matchers::Contains;

JobCoordinator::Options OfferingOptions(int size) {
  JobCoordinator::Options options = OptionsOf(size);
  options.algorithms.flat_all_reduce_bytes = 9000;
  return options;
}

// What the coordinator says to nodes of one rank each, with these addresses.
v1::RankExchangeOffer OfferTo(const JobCoordinator::Options& options,
                              const std::vector<std::string>& addresses) {
  RecordedNodes nodes;
  const Clock::time_point now = Clock::now();
  JobCoordinator coordinator(options, &nodes, now);
  const auto link = [](std::size_t i) { return LinkId(i + 1); };
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    v1::Hello hello = HelloOf("node" + std::to_string(i), options.size, 1);
    hello.set_rank_exchange_address(addresses[i]);
    coordinator.AddNode(link(i), hello, now);
  }
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    coordinator.OnMessage(link(i), RankJoinedOf(static_cast<int>(i), 0, 100), now);
  }
  v1::Membership first;
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    v1::Membership told = nodes.Last(link(i), &v1::CoordinatorMessage::has_membership,
                                     &v1::CoordinatorMessage::membership);
    REQUIRE(told.nodes_size() == options.size);
    for (std::size_t n = 0; n < addresses.size(); ++n) {
      CHECK(told.nodes(static_cast<int>(n)).rank_exchange_address() == addresses[n]);
    }
    if (i == 0) first = told;
    CHECK(told.rank_exchange().SerializeAsString() == first.rank_exchange().SerializeAsString());
  }
  return first.rank_exchange();
}

std::vector<std::string> Addresses(std::size_t count) { return {count, "10.0.0.1:4711"}; }

TEST_CASE("JobCoordinator: offers a rank exchange if all nodes take part, the same one to all") {
  const v1::RankExchangeOffer offer = OfferTo(OfferingOptions(2), Addresses(2));
  CHECK(offer.offered());
  CHECK(offer.limit_bytes() == kRankExchangeMostBytes);
  CHECK(offer.why_not().empty());
}

TEST_CASE("JobCoordinator: among more nodes the limit is what one node may receive from each") {
  JobCoordinator::Options options = OfferingOptions(4);
  CHECK(OfferTo(options, Addresses(4)).limit_bytes() == 3000);
  options.algorithms.flat_all_reduce_bytes = 1 << 20;
  CHECK(OfferTo(options, Addresses(4)).limit_bytes() == kRankExchangeMostBytesOfMany);
  options.algorithms.flat_all_reduce_bytes = 0;
  const v1::RankExchangeOffer none = OfferTo(options, Addresses(4));
  CHECK_FALSE(none.offered());
  CHECK_THAT(none.why_not(), Contains("flat_all_reduce_bytes"));
}

TEST_CASE(
    "JobCoordinator: the rank exchange spares the daemons, and so may win where going through one "
    "node "
    "lost") {
  using std::chrono::microseconds;
  JobCoordinator::Options options = OfferingOptions(4);
  PlanStore plans("");
  options.plans = &plans;
  options.choose_flat_all_reduces = true;
  options.measure_links = true;
  options.ring_order = {"node0", "node1", "node2", "node3"};
  StoredTrial trial;
  trial.nodes = options.ring_order;
  trial.unix_seconds = std::time(nullptr);
  trial.times = {{64, microseconds(200), microseconds(180)}};
  plans.PutTrial(trial);
  CHECK(OfferTo(options, Addresses(4)).limit_bytes() == 3000);
  trial.times = {{64, microseconds(200), microseconds(90)}};
  plans.PutTrial(trial);
  CHECK(OfferTo(options, Addresses(4)).limit_bytes() == 0);
}

TEST_CASE("JobCoordinator: among many nodes the k-nomial tree goes on where it was tried to win") {
  using std::chrono::microseconds;
  JobCoordinator::Options options = OfferingOptions(8);
  PlanStore plans("");
  options.plans = &plans;
  options.choose_flat_all_reduces = true;
  options.measure_links = true;
  for (int node = 0; node < 8; ++node) options.ring_order.push_back("node" + std::to_string(node));
  CHECK(OfferTo(OfferingOptions(8), Addresses(8)).flat_bytes() ==
        OfferTo(OfferingOptions(8), Addresses(8)).limit_bytes());
  StoredTrial trial;
  trial.nodes = options.ring_order;
  trial.unix_seconds = std::time(nullptr);
  trial.times = {{64, microseconds(160), microseconds(230)},
                 {1024, microseconds(165), microseconds(250)},
                 {4096, microseconds(230), microseconds(330)},
                 {16384, microseconds(970), microseconds(430)}};
  plans.PutTrial(trial);
  const v1::RankExchangeOffer offer = OfferTo(options, Addresses(8));
  CHECK(offer.limit_bytes() == kRankExchangeMostBytesOfMany);
  CHECK(offer.flat_bytes() > 1024);
  CHECK(offer.flat_bytes() < 4096);
}

TEST_CASE("JobCoordinator: offers none to some nodes, and says to all why") {
  JobCoordinator::Options options = OfferingOptions(2);
  std::vector<std::string> addresses = Addresses(2);
  std::string why;
  SECTION("a node does not take part") {
    addresses[1] = "";
    why = "ringd on node1 takes no part";
  }
  SECTION("a node's address makes no sense") {
    addresses[1] = "nowhere";
    why = "ringd on node1 says no address";
  }
  SECTION("there is one node") {
    options.size = 1;
    addresses.pop_back();
    why = "all ranks are on one node";
  }
  SECTION("there are many nodes") {
    options.size = kRankExchangeMostNodes + 1;
    addresses = Addresses(kRankExchangeMostNodes + 1);
    why = "more than 16 nodes";
  }
  const v1::RankExchangeOffer offer = OfferTo(options, addresses);
  CHECK_FALSE(offer.offered());
  CHECK(offer.limit_bytes() == 0);
  CHECK_THAT(offer.why_not(), Contains(why));
}

}  // namespace
}  // namespace ringd
