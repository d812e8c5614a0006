// The simulated network, and time as it passes at the nodes: delays, order, pauses, losses.
#ifndef RINGD_TESTS_SIMULATION_NETWORK_H_
#define RINGD_TESTS_SIMULATION_NETWORK_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "daemon/schedule/schedule_time.h"
#include "tests/simulation/event_queue.h"
#include "tests/simulation/random.h"
#include "tests/simulation/scenario.h"

namespace ringd::simulation {

// Each node has a stream to the coordinator, which is on node 0, and one back.
//
// Thread safety: none. Ownership: scenario and events must outlive it.
// Invariant: what is sent on a stream arrives in its order, also what a node has sent before it was lost;
//   at a lost node nothing happens any more.
class Network {
 public:
  using Action = std::function<void()>;

  Network(const Scenario& scenario, EventQueue& events, Random random);

  // Runs `action` at `node` after `delay`, later if the node is paused then.
  void AtNode(int node, std::chrono::nanoseconds delay, Action action);
  // Runs `action` when a message that is sent now arrives at the coordinator, or at the node. `least`: not
  // before this has passed, as when the end of a stream is noticed.
  void ToCoordinator(int node, Action action, std::chrono::nanoseconds least = {});
  void ToNode(int node, Action action, std::chrono::nanoseconds least = {});

  void Lose(int node) { lost_[static_cast<std::size_t>(node)] = true; }
  bool IsLost(int node) const { return lost_[static_cast<std::size_t>(node)]; }

  // Anything up to `limit`.
  std::chrono::nanoseconds Upto(std::chrono::nanoseconds limit);
  std::uint64_t messages() const { return messages_; }

 private:
  void Deliver(int node, TimePoint& last, Action action, std::chrono::nanoseconds least);
  std::optional<TimePoint> ResumeTime(int node) const;

  const Scenario& scenario_;
  EventQueue& events_;
  Random random_;
  std::vector<TimePoint> last_to_coordinator_;  // by node, keeps each stream in order
  std::vector<TimePoint> last_to_node_;
  std::vector<bool> lost_;
  std::uint64_t messages_ = 0;
};

}  // namespace ringd::simulation

#endif  // RINGD_TESTS_SIMULATION_NETWORK_H_
