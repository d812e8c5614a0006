// Runs one scenario from start to end: the real scheduling code over a simulated network.
#ifndef RINGD_TESTS_SIMULATION_CLUSTER_H_
#define RINGD_TESTS_SIMULATION_CLUSTER_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/schedule/coordinator.h"
#include "daemon/schedule/plan_tuner.h"
#include "tests/simulation/data_plane.h"
#include "tests/simulation/event_queue.h"
#include "tests/simulation/ledger.h"
#include "tests/simulation/random.h"
#include "tests/simulation/rank_thread.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/simulated_node.h"

namespace ringd::simulation {

struct Outcome {
  std::vector<std::string> findings;  // empty: all is well
  std::uint64_t submissions = 0;
  std::uint64_t messages = 0;  // nodes' to the coordinator, and its broadcasts
  std::uint64_t breaks = 0;
  std::uint64_t learned_operations = 0;  // over all nodes
  std::uint64_t cancelled_operations = 0;
  std::uint64_t schedules = 0;
  std::uint64_t replans = 0;
  PlanOrigin origin = PlanOrigin::kNone;
  KeptPlan learned;  // for another run of the same job
  std::chrono::nanoseconds duration{0};
};

// Thread safety: none. Ownership: the scenario must outlive it.
class Cluster {
 public:
  explicit Cluster(const Scenario& scenario);
  ~Cluster();

  Outcome Run();

 private:
  struct Thread {
    RankThread program;
    int node;
    std::size_t kind;  // which of the scenario's programs
    bool at_barrier = false;
    bool busy = false;  // computing
  };

  void AdvanceThread(Thread& thread);
  void AdvanceNode(int node);
  void OpenBarriers(std::size_t kind);
  void WatchForSilence();
  void WakeLoop(int node);
  void SendToCoordinator(int node, NodeMessage message);
  void WakeCoordinator();
  void Broadcast(const std::vector<CoordinatorMessage>& messages);
  void OnStartedEverywhere(OperationId operation);
  void LoseNode();
  void Measure(const Scenario::LinkChange& change);

  // Runs `action` at `node` after `delay`, later if the node is paused then, never if it is lost.
  void AtNode(int node, std::chrono::nanoseconds delay, std::function<void()> action);
  std::chrono::nanoseconds Upto(std::chrono::nanoseconds limit);
  std::optional<TimePoint> ResumeTime(int node) const;
  bool AllEnded() const;
  Outcome Conclude();

  const Scenario& scenario_;
  Random random_;
  EventQueue events_;
  Ledger ledger_;
  DataPlane data_plane_;
  Coordinator coordinator_;
  PlanTuner tuner_;
  std::vector<std::unique_ptr<SimulatedNode>> nodes_;
  std::deque<Thread> threads_;

  std::vector<TimePoint> last_to_coordinator_;  // by node, keeps each channel in order
  std::vector<TimePoint> last_from_coordinator_;
  std::vector<bool> loop_awake_;  // by node
  bool coordinator_awake_ = false;
  int lost_node_ = -1;
  bool failed_ = false;
  std::uint64_t submissions_ = 0;
  std::uint64_t messages_ = 0;
  std::optional<std::uint64_t> messages_when_silent_;
};

}  // namespace ringd::simulation

#endif  // RINGD_TESTS_SIMULATION_CLUSTER_H_
