#include "daemon/peers/socket_peer_network.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <string>
#include <utility>

#include "tests/count_descriptors.h"
#include "tests/daemon/peers/peer_host.h"
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

StreamId WaitForNode(PeerHost& host) {
  REQUIRE(host.events.WaitFor([](const auto& records) { return !records.empty(); }));
  return host.events.All().begin()->first;
}

bool WaitForEnd(RecordedEvents& events, StreamId stream, milliseconds timeout = seconds(30)) {
  return events.WaitFor(
      [&](const auto& records) {
        const auto found = records.find(stream);
        return found != records.end() && found->second.disconnected > 0;
      },
      timeout);
}

// The streams of a host and a node that are connected.
struct Pair {
  Pair() : opened(node.Connect(host.address(), seconds(5))) { accepted = WaitForNode(host); }

  PeerHost host{"secret", PatientOptions()};
  PeerHost node{"", PatientOptions()};
  StreamId opened;
  StreamId accepted;
};

// Turns each node away as soon as it is told of it, when its connection is still to be handed in.
struct TurningAway : RecordedEvents {
  void OnNodeConnected(StreamId stream, ExpectationId job, std::string from) override {
    RecordedEvents::OnNodeConnected(stream, job, std::move(from));
    network->Send(stream, NumberedReply(7));
    network->Close(stream, absl::FailedPreconditionError("not now"));
  }

  PeerNetwork* network = nullptr;
};

}  // namespace

TEST_CASE("SocketPeerNetwork: messages travel both ways and it is known where the node is") {
  Pair pair;
  CHECK(pair.host.events.Get(pair.accepted).from.rfind("node-a at 127.0.0.1 port ", 0) == 0);
  pair.node.network->Send(pair.opened, Numbered(7));
  REQUIRE(pair.host.events.WaitFor(
      [&](const auto& records) { return records.at(pair.accepted).from_node.size() == 1; }));
  CHECK(pair.host.events.Get(pair.accepted).from_node[0].failure().code() == 7);

  pair.host.network->Send(pair.accepted, NumberedReply(8));
  REQUIRE(pair.node.events.WaitFor([&](const auto& records) {
    return records.count(pair.opened) == 1 && records.at(pair.opened).from_coordinator.size() == 1;
  }));
  CHECK(pair.node.events.Get(pair.opened).from_coordinator[0].failure().code() == 8);
}

TEST_CASE("SocketPeerNetwork: 10,000 messages each way arrive complete and in order") {
  constexpr int kCount = 10000;
  Pair pair;
  for (int i = 0; i < kCount; ++i) {
    pair.node.network->Send(pair.opened, Numbered(i));
    pair.host.network->Send(pair.accepted, NumberedReply(i));
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

TEST_CASE("SocketPeerNetwork: messages sent before the coordinator listens arrive once it does") {
  const std::string target = PeerHost().address();
  PeerHost node("");
  const StreamId opened = node.Connect(target, seconds(10));
  for (int i = 0; i < 10; ++i) node.network->Send(opened, Numbered(i));
  CHECK_FALSE(WaitForEnd(node.events, opened, milliseconds(300)));

  PeerHost host("secret", {}, target);
  const StreamId accepted = WaitForNode(host);
  REQUIRE(host.events.WaitFor(
      [&](const auto& records) { return records.at(accepted).from_node.size() == 10; }));
  CHECK(host.events.Get(accepted).from_node[9].failure().code() == 9);
}

TEST_CASE("SocketPeerNetwork: a coordinator that is not there is given up at the deadline") {
  PeerHost node("");
  const SilentListener nobody;  // takes connections and says nothing
  std::string target = nobody.Target();
  std::string words;
  PeerHost without_job("");
  switch (GENERATE(0, 1, 2)) {
    case 0:
      words = "does not answer";
      break;
    case 1:
      target = PeerHost().address();
      words = "refused";
      break;
    case 2:
      target = without_job.address();
      words = "no rank of the job has joined there";
      break;
  }
  const Clock::time_point deadline = In(seconds(2));
  const StreamId opened = node.Connect(target, seconds(2));
  node.network->Send(opened, Numbered(1));
  REQUIRE(WaitForEnd(node.events, opened));
  const StreamRecord record = node.events.Get(opened);
  CHECK(record.why.code() == absl::StatusCode::kDeadlineExceeded);
  CHECK_THAT(std::string(record.why.message()), Catch::Contains(target) && Catch::Contains(words));
  CHECK(record.ended < deadline + seconds(8));
}

TEST_CASE(
    "SocketPeerNetwork: a node that comes before its job is let in as soon as that is there") {
  PeerHost host(""), node("");
  const StreamId opened = node.Connect(host.address(), seconds(20));
  CHECK_FALSE(WaitForEnd(node.events, opened, milliseconds(200)));
  const ExpectationId job = host.Expect("secret");
  CHECK(host.events.Get(WaitForNode(host)).job == job);
}

TEST_CASE(
    "SocketPeerNetwork: a node with another key is refused at once, and both sides hear of it") {
  PeerHost host, node("");
  const StreamId opened = node.Connect(host.address(), seconds(20), "another");
  REQUIRE(WaitForEnd(node.events, opened));
  CHECK(node.events.Get(opened).why.code() == absl::StatusCode::kUnauthenticated);
  REQUIRE(host.events.WaitFor([&](const auto&) { return true; }));
  const auto refused = host.events.refused();
  REQUIRE(refused.size() == 1);
  CHECK(refused[0].second.node_name == "node-a");
  CHECK(host.events.All().empty());
}

TEST_CASE(
    "SocketPeerNetwork: a job that is not expected any more lets nobody in; its streams stay") {
  Pair pair;
  pair.host.network->StopExpecting(pair.host.events.Get(pair.accepted).job);
  const StreamId late = pair.node.Connect(pair.host.address(), milliseconds(300));
  REQUIRE(WaitForEnd(pair.node.events, late));
  pair.node.network->Send(pair.opened, Numbered(7));
  CHECK(pair.host.events.WaitFor(
      [&](const auto& records) { return records.at(pair.accepted).from_node.size() == 1; }));
}

TEST_CASE("SocketPeerNetwork: a ringd that drains says so to nodes of jobs that it does not know") {
  PeerHost host(""), node("");
  const StreamId opened = node.Connect(host.address(), seconds(20));
  host.control->RefuseNewJobs(true);  // also to those that wait already
  REQUIRE(WaitForEnd(node.events, opened));
  CHECK_THAT(std::string(node.events.Get(opened).why.message()), Catch::Contains("draining"));
}

TEST_CASE("SocketPeerNetwork: whose rendezvous leads to the own ringd hears that") {
  PeerHost host("");
  const StreamId opened = host.Connect(host.address(), seconds(20));
  REQUIRE(WaitForEnd(host.events, opened));
  CHECK(host.events.Get(opened).is_here);
}

TEST_CASE("SocketPeerNetwork: the coordinator is found by its name") {
  PeerHost host, node("");
  const std::string port = host.address().substr(host.address().rfind(':'));
  node.Connect("localhost" + port, seconds(10));
  WaitForNode(host);
}

TEST_CASE("SocketPeerNetwork: a name that nobody knows is named at the deadline") {
  PeerHost node("");
  const StreamId opened = node.Connect("no-such-host.invalid:7117", milliseconds(300));
  REQUIRE(WaitForEnd(node.events, opened, seconds(60)));
  CHECK_THAT(std::string(node.events.Get(opened).why.message()),
             Catch::Contains("no-such-host.invalid"));
}

TEST_CASE("SocketPeerNetwork: closing at the node sends what waits, then ends both sides once") {
  Pair pair;
  for (int i = 0; i < 1000; ++i) pair.node.network->Send(pair.opened, Numbered(i));
  // It stands at the node, too: what is closed before is never sent.
  REQUIRE(pair.host.events.WaitFor(
      [&](const auto& records) { return !records.at(pair.accepted).from_node.empty(); }));
  pair.node.network->Close(pair.opened, absl::CancelledError("the job has ended"));
  pair.node.network->Close(pair.opened, absl::InternalError("a second reason"));
  pair.node.network->Send(pair.opened, Numbered(1000));
  REQUIRE(WaitForEnd(pair.node.events, pair.opened));
  REQUIRE(WaitForEnd(pair.host.events, pair.accepted));

  const StreamRecord at_node = pair.node.events.Get(pair.opened);
  CHECK(at_node.why == absl::CancelledError("the job has ended"));
  const StreamRecord at_host = pair.host.events.Get(pair.accepted);
  CHECK(at_host.why.ok());
  CHECK(at_host.from_node.size() == 1000);

  pair.node.network->Close(pair.opened, absl::InternalError("after the end"));
  pair.host.network->Close(pair.accepted, absl::InternalError("after the end"));
  pair.host.Stop();
  CHECK(pair.node.events.Get(pair.opened).disconnected == 1);
  CHECK(pair.host.events.Get(pair.accepted).disconnected == 1);
  CHECK_FALSE(pair.host.events.Get(pair.accepted).after_disconnect);
}

TEST_CASE("SocketPeerNetwork: closing at the coordinator tells the node the reason") {
  Pair pair;
  for (int i = 0; i < 1000; ++i) pair.host.network->Send(pair.accepted, NumberedReply(i));
  // Long, and not ASCII: what doesn't fit is cut between characters.
  std::string text = "the job secret is wrong: ";
  for (int i = 0; i < 3000; ++i) text += "ü";
  pair.host.network->Close(pair.accepted, absl::UnauthenticatedError(text));
  REQUIRE(WaitForEnd(pair.node.events, pair.opened));
  REQUIRE(WaitForEnd(pair.host.events, pair.accepted));
  const StreamRecord at_node = pair.node.events.Get(pair.opened);
  CHECK(at_node.from_coordinator.size() == 1000);
  CHECK(at_node.why.code() == absl::StatusCode::kUnauthenticated);
  CHECK(at_node.why.message().size() >= 2000);
  CHECK(text.rfind(std::string(at_node.why.message()), 0) == 0);
  CHECK(pair.host.events.Get(pair.accepted).why == absl::UnauthenticatedError(text));
}

TEST_CASE("SocketPeerNetwork: a node that is turned away as soon as it comes hears the reason") {
  TurningAway events;  // outlives the host's streams
  PeerHost host, node("");
  events.network = host.network.get();
  host.network->SetEvents(&events);
  const StreamId opened = node.Connect(host.address(), seconds(20));
  REQUIRE(WaitForEnd(node.events, opened));
  const StreamRecord at_node = node.events.Get(opened);
  CHECK(at_node.why == absl::FailedPreconditionError("not now"));
  CHECK(at_node.from_coordinator.size() == 1);
}

TEST_CASE("SocketPeerNetwork: a stream closed before it stands ends soon with that reason") {
  const SilentListener nobody;
  PeerHost node("");
  const StreamId opened = node.Connect(nobody.Target(), seconds(60));
  node.network->Send(opened, Numbered(1));
  const Clock::time_point closed = Clock::now();
  node.network->Close(opened, absl::AbortedError("rank 1 died"));
  REQUIRE(WaitForEnd(node.events, opened));
  CHECK(node.events.Get(opened).why == absl::AbortedError("rank 1 died"));
  CHECK(node.events.Get(opened).ended < closed + seconds(30));
}

TEST_CASE("SocketPeerNetwork: one stream's end leaves the others alone") {
  PeerHost host, node("");
  const StreamId first = node.Connect(host.address(), seconds(5));
  const StreamId second = node.Connect(host.address(), seconds(5));
  node.network->Send(second, Numbered(2));
  REQUIRE(host.events.WaitFor([](const auto& records) { return records.size() == 2; }));
  node.network->Close(first, absl::CancelledError("done"));
  REQUIRE(WaitForEnd(node.events, first));
  node.network->Send(second, Numbered(3));
  REQUIRE(host.events.WaitFor([](const auto& records) {
    std::size_t messages = 0;
    for (const auto& [id, record] : records) messages += record.from_node.size();
    return messages == 2;
  }));
  CHECK(node.events.Get(second).disconnected == 0);
}

TEST_CASE("SocketPeerNetwork: a peer that takes nothing costs its stream, not the memory") {
  SocketPeerNetworkOptions options;
  options.stream.max_outgoing_bytes = 1 << 20;
  const SilentListener nobody;
  PeerHost node("", options);
  const StreamId opened = node.Connect(nobody.Target(), seconds(60));
  v1::NodeMessage message;
  message.mutable_failure()->set_text(std::string(300 << 10, 'x'));
  for (int i = 0; i < 5; ++i) node.network->Send(opened, message);
  REQUIRE(WaitForEnd(node.events, opened));
  CHECK(node.events.Get(opened).why.code() == absl::StatusCode::kResourceExhausted);
}

TEST_CASE(
    "SocketPeerNetwork: of a node whose messages are not dealt with no more is read, until they "
    "are") {
  SocketPeerNetworkOptions options;
  options.max_unhandled_bytes = 1 << 20;
  PeerHost host("secret", options);
  PeerHost node("");
  host.events.KeepHolds();
  const StreamId opened = node.Connect(host.address(), seconds(5));
  v1::NodeMessage message;
  message.mutable_failure()->set_text(std::string(100 << 10, 'x'));
  constexpr std::size_t kCount = 200;  // 20 MiB
  for (std::size_t i = 0; i < kCount; ++i) node.network->Send(opened, message);
  const StreamId accepted = WaitForNode(host);
  REQUIRE(host.events.WaitFor(
      [&](const auto& records) { return !records.at(accepted).from_node.empty(); }));
  // Past several probes: it reads nothing, and takes that for no silence.
  CHECK_FALSE(WaitForEnd(host.events, accepted, milliseconds(300)));
  const std::size_t read = host.events.Get(accepted).from_node.size();
  CHECK(read <= 14);  // 1 MiB, and what was begun
  host.events.DropHolds();
  CHECK(host.events.WaitFor(
      [&](const auto& records) { return records.at(accepted).from_node.size() == kCount; }));
  CHECK(node.events.Get(opened).disconnected == 0);
}

TEST_CASE("SocketPeerNetwork: a message that is too long ends its stream, and is not sent") {
  Pair pair;
  v1::NodeMessage message;
  message.mutable_failure()->set_text(std::string((32 << 20) + 1, 'x'));
  pair.node.network->Send(pair.opened, std::move(message));
  REQUIRE(WaitForEnd(pair.node.events, pair.opened));
  CHECK(pair.node.events.Get(pair.opened).why.code() == absl::StatusCode::kResourceExhausted);
  REQUIRE(WaitForEnd(pair.host.events, pair.accepted));
  CHECK(pair.host.events.Get(pair.accepted).from_node.empty());
}

TEST_CASE("SocketPeerNetwork: a message of 30 MiB arrives whole") {
  Pair pair;
  v1::NodeMessage message;
  message.mutable_failure()->set_text(std::string(30 << 20, 'x'));
  pair.node.network->Send(pair.opened, message);
  REQUIRE(pair.host.events.WaitFor(
      [&](const auto& records) { return records.at(pair.accepted).from_node.size() == 1; }));
  CHECK(pair.host.events.Get(pair.accepted).from_node[0].failure().text() ==
        message.failure().text());
}

TEST_CASE("SocketPeerNetwork: shutting down ends every stream and later ones are turned away") {
  Pair pair;
  pair.host.network->Shutdown(In(seconds(30)));
  CHECK(pair.host.events.Get(pair.accepted).disconnected == 1);
  REQUIRE(WaitForEnd(pair.node.events, pair.opened));
  CHECK(pair.node.events.Get(pair.opened).why.code() == absl::StatusCode::kCancelled);
  const StreamId late = pair.node.Connect(pair.host.address(), seconds(5));
  REQUIRE(WaitForEnd(pair.node.events, late));
  CHECK(pair.node.events.Get(late).why.code() == absl::StatusCode::kUnavailable);
  CHECK(pair.host.events.All().size() == 1);
}

TEST_CASE(
    "SocketPeerNetwork: networks that are destroyed, with messages under way, leave no "
    "descriptor") {
  const auto make_and_destroy = [](int i) {
    Pair pair;
    pair.node.network->Send(pair.opened, Numbered(i));
  };
  const std::size_t before = CountDescriptors();
  for (int i = 0; i < 6; ++i) make_and_destroy(i);
  CHECK(CountDescriptors() == before);
}

}  // namespace ringd
