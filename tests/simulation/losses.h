// Brings about the losses of a scenario, and what follows from them: who notices what when is
// drawn, what is then said travels over the simulated network, and the daemon's own code decides on
// the cause.
#ifndef RINGD_TESTS_SIMULATION_LOSSES_H_
#define RINGD_TESTS_SIMULATION_LOSSES_H_

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "daemon/jobs/coordinator/job_coordinator.h"
#include "tests/simulation/event_queue.h"
#include "tests/simulation/ledger.h"
#include "tests/simulation/network.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/simulated_node.h"
#include "tests/simulation/story.h"

namespace ringd::simulation {

// The job's JobCoordinator, on node 0. All nodes have joined it when the job begins; its schedule
// is not used, since scenarios turn knobs of that which it doesn't have (see Cluster).
//
// Thread safety: none.
// Ownership: borrows everything that it is given.
class Losses final : public NodeSender {
 public:
  struct World {
    const Scenario& scenario;
    EventQueue& events;
    Network& network;
    Ledger& ledger;
    Story& story;
    std::vector<std::unique_ptr<SimulatedNode>>& nodes;
    // A rank or a node has gone, or a node has ended the job.
    std::function<void()> changed;
  };

  explicit Losses(World world);

  // Lets the nodes join. Once, when they exist.
  void Begin();

  // The coordinator has told the nodes why the job ends: it takes no scheduling messages any more.
  bool told() const { return told_; }
  // How many of the scenario's losses have happened.
  std::size_t count() const { return count_; }
  // Nodes that had seen one loss, and ended the job because of another.
  std::size_t overruled() const { return overruled_; }
  bool IsLost(int rank) const { return rank_lost_[static_cast<std::size_t>(rank)]; }
  // Nothing was lost, or every node that is left has ended the job.
  bool AllHaveHeard() const;

  void SendToNode(LinkId link, v1::CoordinatorMessage message) override;
  void CloseNode(LinkId link, const absl::Status& reason) override;

 private:
  void LoseNode(const Loss& loss);
  void LoseRank(const Loss& loss);
  // The node has seen it.
  void Propose(int node, const std::string& loss);
  void Tick(int node);
  void Decide(int node, const std::string& cause);
  MemberNode Describe(int node) const;

  const World world_;
  JobCoordinator coordinator_;
  std::vector<bool> rank_lost_;
  std::vector<std::string> proposals_;  // by node: the loss that it has seen; empty: none
  std::size_t count_ = 0;
  std::size_t overruled_ = 0;
  bool told_ = false;
  std::set<int> told_nodes_;
};

}  // namespace ringd::simulation

#endif  // RINGD_TESTS_SIMULATION_LOSSES_H_
