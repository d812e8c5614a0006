// Nodes that have the job's key and keep their connections, by calls that are refused.
#include <sys/resource.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/peers/expected_jobs.h"
#include "tests/daemon/door/door_fixture.h"
#include "tests/daemon/peers/peer_host.h"
#include "tests/daemon/peers/raw_node.h"

namespace ringd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::size_t kPlaces = ExpectedJobs::kMostConnections;

GrpcPeerNetworkOptions Options(milliseconds call_patience, milliseconds hang_up_patience) {
  GrpcPeerNetworkOptions options;
  options.call_patience = call_patience;
  options.hang_up_patience = hang_up_patience;
  options.keepalive_interval = std::chrono::hours(1);  // raw nodes answer no pings
  return options;
}

// A door from which raw nodes come.
class Outside {
 public:
  Outside() : door_(OpenPeerDoor("127.0.0.1:0")) { door_->Start(); }
  ~Outside() { door_->Stop(); }

  std::unique_ptr<RawNode> Come(const std::string& address) {
    absl::StatusOr<DoorConnection> connection = DialOutcome(*door_, address, "secret").Await();
    INFO(connection.status());
    REQUIRE(connection.ok());
    return std::make_unique<RawNode>(*std::move(connection));
  }
  DialOutcome Dial(const std::string& address) { return DialOutcome(*door_, address, "secret"); }

 private:
  std::unique_ptr<Door> door_;
};

bool WaitForStreams(PeerHost& host, std::size_t connected, std::size_t disconnected) {
  return host.events.WaitFor(
      [&](const auto& records) {
        const auto ended = std::count_if(records.begin(), records.end(), [](const auto& entry) {
          return entry.second.disconnected > 0;
        });
        return records.size() >= connected && static_cast<std::size_t>(ended) >= disconnected;
      },
      seconds(20));
}

}  // namespace

TEST_CASE("GrpcPeerNetwork: a node that goes on calling after its stream has ended is hung up on") {
  PeerHost host("secret", Options(seconds(60), milliseconds(300)));
  Outside outside;
  const auto node = outside.Come(host.address());
  node->BeginStream();
  REQUIRE(WaitForStreams(host, 1, 0));
  node->ResetStream();
  REQUIRE(WaitForStreams(host, 1, 1));
  const Clock::time_point ended = Clock::now();
  CHECK(Within([&] { return !node->MakeRefusedCall(); }, seconds(10)));
  // What the other side is told at the end has time to arrive.
  CHECK(Clock::now() - ended > milliseconds(200));
}

TEST_CASE(
    "GrpcPeerNetwork: a node that makes refused calls and never opens its stream is hung up on") {
  PeerHost host("secret", Options(milliseconds(300), seconds(60)));
  Outside outside;
  const auto node = outside.Come(host.address());
  REQUIRE(node->MakeRefusedCall());
  CHECK(Within([&] { return !node->MakeRefusedCall(); }, seconds(10)));
  CHECK(host.events.All().empty());
}

TEST_CASE(
    "GrpcPeerNetwork: nodes that stay after their streams never have more than 1,024 connections") {
  constexpr std::size_t kFurther = 48;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  PeerHost host("secret", Options(seconds(60), seconds(1)));
  Outside outside;
  const std::size_t before = CountDescriptors();

  std::vector<std::unique_ptr<RawNode>> nodes;
  for (std::size_t i = 0; i < kPlaces; ++i) {
    nodes.push_back(outside.Come(host.address()));
    nodes.back()->BeginStream();
  }
  REQUIRE(WaitForStreams(host, kPlaces, 0));
  for (const auto& node : nodes) node->ResetStream();
  REQUIRE(WaitForStreams(host, kPlaces, kPlaces));

  // Others come in only as those are hung up on, who would stay for ever. Three descriptors each:
  // one is the node's own.
  std::vector<DialOutcome> further;
  for (std::size_t i = 0; i < kFurther; ++i) further.push_back(outside.Dial(host.address()));
  std::size_t most = 0;
  std::size_t most_descriptors = 0;
  const auto all_are_in = [&] {
    const auto in = static_cast<std::size_t>(
        std::count_if(further.begin(), further.end(), [](auto& dial) { return dial.times() > 0; }));
    std::erase_if(nodes, [](const auto& node) { return !node->MakeRefusedCall(); });
    most = std::max(most, in + nodes.size());
    most_descriptors = std::max(most_descriptors, CountDescriptors());
    return in == kFurther && nodes.empty();
  };
  CHECK(Within(all_are_in));
  CHECK(most <= kPlaces);
  CHECK(most_descriptors <= before + 3 * kPlaces + 3 * kFurther);
  for (DialOutcome& dial : further) CHECK(dial.Await().status().message() == "");
}

}  // namespace ringd
