#include "daemon/peers/grpc_peer_network.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <string>

#include "proto/base/unique_fd.h"
#include "tests/daemon/peers/coordinator_host.h"
#include "tests/daemon/peers/recorded_events.h"
#include "tests/daemon/peers/silent_listener.h"

namespace ringd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Clock::time_point In(milliseconds delay) { return Clock::now() + delay; }

v1::NodeMessage Numbered(int number) {
  v1::NodeMessage message;
  message.mutable_failure()->set_code(number);
  return message;
}

v1::CoordinatorMessage NumberedReply(int number) {
  v1::CoordinatorMessage message;
  message.mutable_failure()->set_code(number);
  return message;
}

// A node's end, whose network goes before its events.
struct Node {
  explicit Node(GrpcPeerNetworkOptions options = {}) : network(options) {
    network.SetEvents(&events);
  }
  ~Node() { network.Shutdown(In(seconds(3))); }

  RecordedEvents events;
  GrpcPeerNetwork network;
};

StreamId WaitForNode(CoordinatorHost& host) {
  REQUIRE(host.events.WaitFor([](const auto& records) { return !records.empty(); }));
  return host.events.All().begin()->first;
}

bool WaitForEnd(RecordedEvents& events, StreamId stream, milliseconds timeout = seconds(10)) {
  return events.WaitFor(
      [&](const auto& records) {
        const auto found = records.find(stream);
        return found != records.end() && found->second.disconnected > 0;
      },
      timeout);
}

// The streams of a host and a node that are connected.
struct Pair {
  Pair() : opened(node.network.ConnectToCoordinator(host.Target(), In(seconds(5)))) {
    accepted = WaitForNode(host);
  }

  CoordinatorHost host;
  Node node;
  StreamId opened;
  StreamId accepted;
};

}  // namespace

TEST_CASE("GrpcPeerNetwork: messages travel both ways and the node's address is known") {
  Pair pair;
  CHECK(pair.host.events.Get(pair.accepted).peer_address.rfind("127.0.0.1:", 0) == 0);
  pair.node.network.Send(pair.opened, Numbered(7));
  REQUIRE(pair.host.events.WaitFor(
      [&](const auto& records) { return records.at(pair.accepted).from_node.size() == 1; }));
  CHECK(pair.host.events.Get(pair.accepted).from_node[0].failure().code() == 7);

  pair.host.network.Send(pair.accepted, NumberedReply(8));
  REQUIRE(pair.node.events.WaitFor([&](const auto& records) {
    return records.count(pair.opened) == 1 && records.at(pair.opened).from_coordinator.size() == 1;
  }));
  CHECK(pair.node.events.Get(pair.opened).from_coordinator[0].failure().code() == 8);
}

TEST_CASE("GrpcPeerNetwork: 10,000 messages each way arrive complete and in order") {
  constexpr int kCount = 10000;
  Pair pair;
  for (int i = 0; i < kCount; ++i) {
    pair.node.network.Send(pair.opened, Numbered(i));
    pair.host.network.Send(pair.accepted, NumberedReply(i));
  }
  REQUIRE(pair.host.events.WaitFor(
      [&](const auto& records) { return records.at(pair.accepted).from_node.size() == kCount; },
      seconds(30)));
  REQUIRE(pair.node.events.WaitFor(
      [&](const auto& records) {
        return records.at(pair.opened).from_coordinator.size() == kCount;
      },
      seconds(30)));
  const StreamRecord at_host = pair.host.events.Get(pair.accepted);
  const StreamRecord at_node = pair.node.events.Get(pair.opened);
  int disordered = 0;
  for (int i = 0; i < kCount; ++i) {
    if (at_host.from_node[i].failure().code() != i) ++disordered;
    if (at_node.from_coordinator[i].failure().code() != i) ++disordered;
  }
  CHECK(disordered == 0);
}

TEST_CASE("GrpcPeerNetwork: messages sent before the coordinator listens arrive once it does") {
  int port = 0;
  {
    CoordinatorHost probe;
    port = probe.port;
  }
  Node node;
  const std::string target = "127.0.0.1:" + std::to_string(port);
  const StreamId opened = node.network.ConnectToCoordinator(target, In(seconds(10)));
  for (int i = 0; i < 10; ++i) node.network.Send(opened, Numbered(i));
  CHECK_FALSE(WaitForEnd(node.events, opened, milliseconds(300)));

  CoordinatorHost host(target);
  REQUIRE(host.server != nullptr);
  const StreamId accepted = WaitForNode(host);
  REQUIRE(host.events.WaitFor(
      [&](const auto& records) { return records.at(accepted).from_node.size() == 10; }));
  CHECK(host.events.Get(accepted).from_node[9].failure().code() == 9);
}

TEST_CASE("GrpcPeerNetwork: a coordinator that is not there is given up at the deadline") {
  Node node;
  const SilentListener nobody;  // takes connections and says nothing
  const bool refused = GENERATE(true, false);
  std::string target = nobody.Target();
  if (refused) {
    CoordinatorHost probe;
    target = probe.Target();
  }
  const Clock::time_point deadline = In(milliseconds(400));
  const StreamId opened = node.network.ConnectToCoordinator(target, deadline);
  node.network.Send(opened, Numbered(1));
  REQUIRE(WaitForEnd(node.events, opened));
  const StreamRecord record = node.events.Get(opened);
  CHECK(record.why.code() == absl::StatusCode::kDeadlineExceeded);
  CHECK(std::string(record.why.message()).find(target) != std::string::npos);
  CHECK(record.ended >= deadline);
  CHECK(record.ended < deadline + seconds(2));
}

TEST_CASE("GrpcPeerNetwork: closing at the node sends what waits, then ends both sides once") {
  Pair pair;
  for (int i = 0; i < 1000; ++i) pair.node.network.Send(pair.opened, Numbered(i));
  pair.node.network.Close(pair.opened, absl::CancelledError("the job has ended"));
  pair.node.network.Close(pair.opened, absl::InternalError("a second reason"));
  pair.node.network.Send(pair.opened, Numbered(1000));
  REQUIRE(WaitForEnd(pair.node.events, pair.opened));
  REQUIRE(WaitForEnd(pair.host.events, pair.accepted));

  const StreamRecord at_node = pair.node.events.Get(pair.opened);
  CHECK(at_node.why == absl::CancelledError("the job has ended"));
  const StreamRecord at_host = pair.host.events.Get(pair.accepted);
  CHECK(at_host.why.ok());
  CHECK(at_host.from_node.size() == 1000);

  pair.node.network.Close(pair.opened, absl::InternalError("after the end"));
  pair.host.network.Close(pair.accepted, absl::InternalError("after the end"));
  pair.host.Stop();
  CHECK(pair.node.events.Get(pair.opened).disconnected == 1);
  CHECK(pair.host.events.Get(pair.accepted).disconnected == 1);
  CHECK_FALSE(pair.host.events.Get(pair.accepted).after_disconnect);
}

TEST_CASE("GrpcPeerNetwork: closing at the coordinator tells the node the reason") {
  Pair pair;
  for (int i = 0; i < 1000; ++i) pair.host.network.Send(pair.accepted, NumberedReply(i));
  // Long, and not ASCII: what doesn't fit is cut between characters.
  std::string text = "the job secret is wrong: ";
  for (int i = 0; i < 3000; ++i) text += "ü";
  pair.host.network.Close(pair.accepted, absl::UnauthenticatedError(text));
  REQUIRE(WaitForEnd(pair.node.events, pair.opened));
  REQUIRE(WaitForEnd(pair.host.events, pair.accepted));
  const StreamRecord at_node = pair.node.events.Get(pair.opened);
  CHECK(at_node.from_coordinator.size() == 1000);
  CHECK(at_node.why.code() == absl::StatusCode::kUnauthenticated);
  CHECK(at_node.why.message().size() >= 2000);
  CHECK(text.rfind(std::string(at_node.why.message()), 0) == 0);
  CHECK(pair.host.events.Get(pair.accepted).why == absl::UnauthenticatedError(text));
}

TEST_CASE("GrpcPeerNetwork: a stream closed before it stands ends soon with that reason") {
  const SilentListener nobody;
  Node node;
  const StreamId opened = node.network.ConnectToCoordinator(nobody.Target(), In(seconds(60)));
  node.network.Send(opened, Numbered(1));
  const Clock::time_point closed = Clock::now();
  node.network.Close(opened, absl::AbortedError("rank 1 died"));
  REQUIRE(WaitForEnd(node.events, opened));
  CHECK(node.events.Get(opened).why == absl::AbortedError("rank 1 died"));
  CHECK(node.events.Get(opened).ended < closed + seconds(4));
}

TEST_CASE("GrpcPeerNetwork: one stream's end leaves the others alone") {
  CoordinatorHost host;
  Node node;
  const StreamId first = node.network.ConnectToCoordinator(host.Target(), In(seconds(5)));
  const StreamId second = node.network.ConnectToCoordinator(host.Target(), In(seconds(5)));
  node.network.Send(second, Numbered(2));
  REQUIRE(host.events.WaitFor([](const auto& records) { return records.size() == 2; }));
  node.network.Close(first, absl::CancelledError("done"));
  REQUIRE(WaitForEnd(node.events, first));
  node.network.Send(second, Numbered(3));
  REQUIRE(host.events.WaitFor([](const auto& records) {
    std::size_t messages = 0;
    for (const auto& [id, record] : records) messages += record.from_node.size();
    return messages == 2;
  }));
  CHECK(node.events.Get(second).disconnected == 0);
}

TEST_CASE("GrpcPeerNetwork: a peer that takes nothing costs its stream, not the memory") {
  GrpcPeerNetworkOptions options;
  options.max_outgoing_bytes = 1 << 20;
  const SilentListener nobody;
  Node node(options);
  const StreamId opened = node.network.ConnectToCoordinator(nobody.Target(), In(seconds(60)));
  v1::NodeMessage message;
  message.mutable_failure()->set_text(std::string(300 << 10, 'x'));
  for (int i = 0; i < 5; ++i) node.network.Send(opened, message);
  REQUIRE(WaitForEnd(node.events, opened));
  CHECK(node.events.Get(opened).why.code() == absl::StatusCode::kResourceExhausted);
}

TEST_CASE("GrpcPeerNetwork: shutting down ends every stream and later ones are turned away") {
  Pair pair;
  pair.host.network.Shutdown(In(seconds(3)));
  CHECK(pair.host.events.Get(pair.accepted).disconnected == 1);
  REQUIRE(WaitForEnd(pair.node.events, pair.opened));
  CHECK(pair.node.events.Get(pair.opened).why.code() == absl::StatusCode::kCancelled);
  const StreamId late = pair.node.network.ConnectToCoordinator(pair.host.Target(), In(seconds(5)));
  REQUIRE(WaitForEnd(pair.node.events, late));
  CHECK(pair.node.events.Get(late).why.code() == absl::StatusCode::kUnavailable);
  CHECK(pair.host.events.All().size() == 1);
}

TEST_CASE("GrpcPeerNetwork: a network may be made and destroyed again and again") {
  for (int i = 0; i < 5; ++i) {
    Pair pair;
    pair.node.network.Send(pair.opened, Numbered(i));
  }
}

}  // namespace ringd
