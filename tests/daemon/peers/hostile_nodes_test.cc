// Nodes that have the job's key and write to their streams what they like, or stay after their end.
#include <sys/resource.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstddef>
#include <memory>
#include <random>
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

SocketPeerNetworkOptions Options(milliseconds close_grace = seconds(60)) {
  SocketPeerNetworkOptions options;
  options.stream.close_grace = close_grace;
  options.stream.keepalive_interval = std::chrono::hours(1);  // raw nodes answer no pings
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

StreamRecord OnlyRecord(PeerHost& host) { return host.events.All().begin()->second; }

}  // namespace

TEST_CASE("Hostile nodes: what is no frame, or no message, ends the stream of who sent it alone") {
  const std::string too_long("\x01\0\0\x02\x01\0\0\0", 8);  // 32 MiB and a byte
  const std::string unknown_kind("\0\0\0\0\x09\0\0\0", 8);
  const std::string long_ping("\x01\0\0\0\x02\0\0\0.", 9);
  const std::string no_zeros("\0\0\0\0\x02\0\0\x01", 8);
  const std::string short_end("\x03\0\0\0\x04\0\0\0...", 11);
  const std::string no_message("\x02\0\0\0\x01\0\0\0\xff\xff", 10);
  const std::string other_protocol = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  const std::vector<std::string> all = {too_long,  unknown_kind, long_ping,     no_zeros,
                                        short_end, no_message,   other_protocol};
  const std::string bytes = all[GENERATE(range(std::size_t{0}, std::size_t{7}))];
  PeerHost host("secret", Options());
  Outside outside;
  const auto honest = outside.Come(host.address());
  honest->Say(RawNode::Message(1));
  REQUIRE(host.events.WaitFor([](const auto& records) {
    return !records.empty() && records.begin()->second.from_node.size() == 1;
  }));
  const auto hostile = outside.Come(host.address());
  hostile->Say(RawNode::Message(1) + bytes + RawNode::Message(2));
  REQUIRE(WaitForStreams(host, 2, 1));
  CHECK(hostile->AwaitHangUp(seconds(10)));
  honest->Say(RawNode::Message(3));
  CHECK(host.events.WaitFor(
      [](const auto& records) { return records.begin()->second.from_node.size() == 2; }));
  const StreamRecord ended = host.events.All().rbegin()->second;
  CHECK(ended.why.code() == absl::StatusCode::kInvalidArgument);
  CHECK(ended.from_node.size() == 1);
}

TEST_CASE("Hostile nodes: a message in single bytes is put together") {
  PeerHost host("secret", Options());
  Outside outside;
  const auto node = outside.Come(host.address());
  for (const char byte : RawNode::Message(7) + RawNode::Message(8)) node->Say({byte});
  REQUIRE(host.events.WaitFor([](const auto& records) {
    return !records.empty() && records.begin()->second.from_node.size() == 2;
  }));
  CHECK(OnlyRecord(host).from_node[1].failure().code() == 8);
}

TEST_CASE("Hostile nodes: unfinished messages of one user together are bounded") {
  SocketPeerNetworkOptions options = Options();
  options.max_buffered_bytes = 1 << 20;
  PeerHost host("secret", options);
  Outside outside;
  std::string begun("\0\0\0\x01\x01\0\0\0", 8);  // of 16 MiB
  begun += std::string(300 << 10, 'x');
  std::vector<std::unique_ptr<RawNode>> nodes;
  for (int i = 0; i < 4; ++i) {
    nodes.push_back(outside.Come(host.address()));
    nodes.back()->Say(begun);
  }
  REQUIRE(WaitForStreams(host, 4, 1));
  for (const auto& [id, record] : host.events.All()) {
    if (record.disconnected == 0) continue;
    CHECK(record.why.code() == absl::StatusCode::kResourceExhausted);
  }
}

TEST_CASE("Hostile nodes: one that pings without pause is answered, and costs no memory") {
  SocketPeerNetworkOptions options = Options();
  options.stream.max_outgoing_bytes = 64 << 10;
  PeerHost host("secret", options);
  Outside outside;
  const auto node = outside.Come(host.address());
  std::string pings;
  for (int i = 0; i < 10'000; ++i) pings += EncodePeerFrame(PeerFrameKind::kPing, {});
  // It never reads an answer, until its own connection is full.
  for (int i = 0; i < 100; ++i) node->SayAllItTakes(pings);
  CHECK_FALSE(host.events.WaitFor(
      [](const auto& records) {
        return !records.empty() && records.begin()->second.disconnected > 0;
      },
      milliseconds(300)));
}

TEST_CASE("Hostile nodes: one that stays after its stream was closed is hung up on") {
  PeerHost host("secret", Options(milliseconds(300)));
  Outside outside;
  const auto node = outside.Come(host.address());
  node->Say(RawNode::Message(1));
  REQUIRE(WaitForStreams(host, 1, 0));
  const Clock::time_point closed = Clock::now();
  host.network->Close(host.events.All().begin()->first, absl::AbortedError("rank 1 died"));
  // Goes on as if nothing had been.
  REQUIRE(Within([&] { return !node->Say(RawNode::Message(2)); }, seconds(10)));
  CHECK(Clock::now() - closed > milliseconds(200));
  REQUIRE(WaitForStreams(host, 1, 1));
  CHECK(node->AwaitHangUp(seconds(10)));
  CHECK(node->heard() == EncodePeerEnd(absl::AbortedError("rank 1 died")));
}

TEST_CASE("Hostile nodes: those that stay after their streams never have more than 1,024 places") {
  constexpr std::size_t kFurther = 48;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  PeerHost host("secret", Options(seconds(1)));
  Outside outside;
  const std::size_t before = CountDescriptors();

  std::vector<std::unique_ptr<RawNode>> nodes;
  for (std::size_t i = 0; i < kPlaces; ++i) nodes.push_back(outside.Come(host.address()));
  REQUIRE(WaitForStreams(host, kPlaces, 0));
  for (const auto& [id, record] : host.events.All()) {
    host.network->Close(id, absl::AbortedError("the job has ended"));
  }

  // Others come in only as those are hung up on, who would stay for ever. Two descriptors each: one
  // is the node's own.
  std::vector<DialOutcome> further;
  for (std::size_t i = 0; i < kFurther; ++i) further.push_back(outside.Dial(host.address()));
  std::size_t most_descriptors = 0;
  const auto all_are_in = [&] {
    most_descriptors = std::max(most_descriptors, CountDescriptors());
    return std::all_of(further.begin(), further.end(), [](auto& dial) { return dial.times() > 0; });
  };
  CHECK(Within(all_are_in));
  REQUIRE(WaitForStreams(host, kPlaces, kPlaces));
  CHECK(most_descriptors <= before + 2 * kPlaces + 2 * kFurther);
  for (DialOutcome& dial : further) CHECK(dial.Await().status().message() == "");
}

}  // namespace ringd
