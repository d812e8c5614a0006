// Runs one scenario from start to end: the real scheduling code, and the real code for the job's
// early end, over a simulated network.
#ifndef RINGD_TESTS_SIMULATION_CLUSTER_H_
#define RINGD_TESTS_SIMULATION_CLUSTER_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/schedule/coordinator/coordinator.h"
#include "daemon/schedule/coordinator/plan_tuner.h"
#include "tests/simulation/data_plane.h"
#include "tests/simulation/event_queue.h"
#include "tests/simulation/ledger.h"
#include "tests/simulation/losses.h"
#include "tests/simulation/network.h"
#include "tests/simulation/random.h"
#include "tests/simulation/rank_thread.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/simulated_node.h"
#include "tests/simulation/story.h"

namespace ringd::simulation {

struct Outcome {
  std::vector<std::string> findings;  // empty: all is well
  std::uint64_t submissions = 0;
  std::uint64_t messages = 0;  // nodes' to the coordinator, and its broadcasts
  std::uint64_t breaks = 0;
  std::uint64_t learned_operations = 0;   // over all nodes
  std::uint64_t launched_operations = 0;  // of those, on GPUs
  std::uint64_t cancelled_operations = 0;
  std::uint64_t schedules = 0;
  std::uint64_t replans = 0;
  PlanOrigin origin = PlanOrigin::kNone;
  KeptPlan learned;                     // for another run of the same job
  std::size_t losses = 0;               // that came before the job's end
  std::size_t overruled = 0;            // nodes that had seen one loss, and heard of another
  std::uint64_t unsent_operations = 0;  // that had no content, over all nodes
  std::size_t buckets = 0;              // in service at the end
  std::string cause;        // why the job ended early; empty: it did not, or nobody waited for it
  bool is_divided = false;  // two causes: the coordinator went with its host amid its word
  std::chrono::nanoseconds duration{0};
  std::vector<std::string> story;  // schedules, misfortunes and what followed, each with its time
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
  void Measure(const Scenario::LinkChange& change);
  void Tell(const CoordinatorMessage& message);

  bool IsGone(const Thread& thread) const;
  bool AllEnded() const;
  Outcome Conclude();

  const Scenario& scenario_;
  Random random_;
  EventQueue events_;
  Story story_;
  Ledger ledger_;
  Network network_;
  DataPlane data_plane_;
  Coordinator coordinator_;
  PlanTuner tuner_;
  std::vector<std::unique_ptr<SimulatedNode>> nodes_;
  std::deque<Thread> threads_;
  Losses losses_;

  std::vector<bool> loop_awake_;  // by node
  bool coordinator_awake_ = false;
  std::optional<std::uint64_t> messages_when_silent_;
};

}  // namespace ringd::simulation

#endif  // RINGD_TESTS_SIMULATION_CLUSTER_H_
