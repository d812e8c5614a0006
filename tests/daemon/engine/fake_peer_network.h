// A PeerNetwork without a network: what is sent is kept.
#ifndef RINGD_TESTS_DAEMON_ENGINE_FAKE_PEER_NETWORK_H_
#define RINGD_TESTS_DAEMON_ENGINE_FAKE_PEER_NETWORK_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "daemon/peers/peer_network.h"

namespace ringd {

// Thread safety: none.
class FakePeerNetwork final : public PeerNetwork {
 public:
  void SetEvents(PeerEvents* /*events*/) override {}
  ExpectationId Expect(ExpectedJob job) override {
    expected.push_back(std::move(job));
    return ExpectationId(expected.size());
  }
  void StopExpecting(ExpectationId job) override { not_expected.push_back(job); }
  StreamId ConnectToCoordinator(CoordinatorAddress coordinator,
                                Clock::time_point /*deadline*/) override {
    connected.push_back(std::move(coordinator));
    return StreamId(connected.size());
  }
  void Send(StreamId stream, v1::NodeMessage message) override {
    to_coordinators[stream].push_back(std::move(message));
  }
  void Send(StreamId stream, v1::CoordinatorMessage message) override {
    to_nodes[stream].push_back(std::move(message));
  }
  void Close(StreamId stream, absl::Status reason) override {
    closed.emplace(stream, std::move(reason));
  }

  std::vector<ExpectedJob> expected;
  std::vector<ExpectationId> not_expected;
  std::vector<CoordinatorAddress> connected;
  std::map<StreamId, std::vector<v1::NodeMessage>> to_coordinators;
  std::map<StreamId, std::vector<v1::CoordinatorMessage>> to_nodes;
  std::map<StreamId, absl::Status> closed;
};

}  // namespace ringd

#endif  // RINGD_TESTS_DAEMON_ENGINE_FAKE_PEER_NETWORK_H_
