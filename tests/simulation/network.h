// The simulated network, and time as it passes at the nodes: delays, order, pauses, losses.
#ifndef RINGD_TESTS_SIMULATION_NETWORK_H_
#define RINGD_TESTS_SIMULATION_NETWORK_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "daemon/schedule/protocol/schedule_time.h"
#include "tests/simulation/event_queue.h"
#include "tests/simulation/random.h"
#include "tests/simulation/scenario.h"

namespace ringd::simulation {

// Each node has a stream to the coordinator, which is on node 0, and one back.
//
// Thread safety: none. Ownership: scenario and events must outlive it.
// Invariant: what is sent on a stream arrives in its order, also what a node has sent before it was
//   lost, unless its host is lost: then what it has sent last may not arrive. At a lost node
//   nothing happens any more.
class Network {
 public:
  using Action = std::function<void()>;

  Network(const Scenario& scenario, EventQueue& events, Random random);

  // Runs `action` at `node` after `delay`, later if the node is paused then.
  void AtNode(int node, std::chrono::nanoseconds delay, Action action);
  // Runs `action` when a message that is sent now arrives at the coordinator, or at the node.
  // `least`: not before this has passed, as when the end of a stream is noticed.
  void ToCoordinator(int node, Action action, std::chrono::nanoseconds least = {});
  void ToNode(int node, Action action, std::chrono::nanoseconds least = {});

  void Lose(int node) { lost_[static_cast<std::size_t>(node)] = true; }
  // As Lose; of what is on its way from the node only the first part arrives, on each stream
  // another.
  void LoseHost(int node);
  bool lost_a_host() const { return lost_a_host_; }
  bool IsLost(int node) const { return lost_[static_cast<std::size_t>(node)]; }

  // Anything up to `limit`.
  std::chrono::nanoseconds Upto(std::chrono::nanoseconds limit);
  std::uint64_t messages() const { return messages_; }

 private:
  struct Stream {
    TimePoint last;  // keeps it in order
    TimePoint cut_off =
        TimePoint::max();  // what was sent before the sender's loss arrives until then
  };

  void Deliver(int sender, int receiver, Stream& stream, Action action,
               std::chrono::nanoseconds least);
  std::optional<TimePoint> ResumeTime(int node) const;

  const Scenario& scenario_;
  EventQueue& events_;
  Random random_;
  std::vector<Stream> to_coordinator_;  // by node
  std::vector<Stream> to_node_;
  std::vector<bool> lost_;
  bool lost_a_host_ = false;
  std::uint64_t messages_ = 0;
};

}  // namespace ringd::simulation

#endif  // RINGD_TESTS_SIMULATION_NETWORK_H_
