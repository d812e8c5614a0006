// A job whose ranks make communicators, use them side by side and destroy them: the real
// JobCoordinator, and for each communicator real node schedulers, over a simulated network.
#ifndef RINGD_TESTS_SIMULATION_COMMUNICATORS_H_
#define RINGD_TESTS_SIMULATION_COMMUNICATORS_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/jobs/coordinator/job_coordinator.h"
#include "tests/simulation/communicators_scenario.h"
#include "tests/simulation/data_plane.h"
#include "tests/simulation/event_queue.h"
#include "tests/simulation/ledger.h"
#include "tests/simulation/network.h"
#include "tests/simulation/random.h"
#include "tests/simulation/rank_thread.h"
#include "tests/simulation/simulated_node.h"

namespace ringd::simulation {

struct CommunicatorsOutcome {
  std::vector<std::string> findings;  // empty: all is well
  std::uint64_t submissions = 0;
  std::size_t made = 0;  // by the coordinator
  std::size_t refused = 0;
  std::size_t ended = 0;  // on all their nodes
  // Of communicators that match by order: submissions, and those that ended since ranks differ.
  std::uint64_t by_order = 0;
  std::uint64_t differed = 0;
  bool failed = false;  // the job, because of its loss
};

// What it holds against a job, besides what a Ledger does, of which each communicator has one: a
// message for a communicator before the node has heard that it is made or after it has heard that
// it has ended; one that is made where none of its ranks is, twice, without all of its ranks'
// asking, or with a number that is another's; one that ends before all have destroyed it; an ask
// without an answer; a communicator that never ends.
//
// Thread safety: none. Ownership: the scenario must outlive it.
class CommunicatorsWorld final : public NodeSender {
 public:
  explicit CommunicatorsWorld(const CommunicatorsScenario& scenario);

  CommunicatorsOutcome Run();

  void SendToNode(LinkId link, v1::CoordinatorMessage message) override;
  void CloseNode(LinkId link, const absl::Status& reason) override;

 private:
  // A rank in one communicator.
  struct Thread {
    Thread(int job_rank, int its_node, int place, const Program& steps, Random random)
        : rank(job_rank), node(its_node), program(place, steps, random) {}
    const int rank;
    const int node;
    RankThread program;
    std::vector<Submission*> open;
    std::uint64_t submitted = 0;
    bool asked = false;
    bool made = false;
    bool busy = false;
    bool over = false;  // destroyed, or refused
  };
  // A node in one communicator.
  struct Part {
    std::unique_ptr<SimulatedNode> simulated;  // null where all ranks are on one node
    std::uint32_t number = 0;                  // 0: not made
    bool ended = false;
    bool loop_awake = false;
  };
  struct One {
    const PlannedCommunicator* plan = nullptr;
    std::unique_ptr<Ledger> ledger;
    std::unique_ptr<DataPlane> data_plane;
    std::map<int, Part> parts;  // by the job's node
    std::vector<int> nodes;     // the job's, by the communicator's index
    std::deque<Thread> threads;
    std::uint32_t number = 0;
  };

  void AddThreads(One& one);
  void MakeNode(One& one, int node);
  void Ask(One& one, Thread& thread);
  void AdvanceThread(One& one, Thread& thread);
  void AdvanceThreads(One& one, int node);
  void Destroy(One& one, Thread& thread);
  void WakeLoop(One& one, int node);
  void OnStartedEverywhere(One& one, OperationId operation);
  void OnDifference(One& one, OperationId operation, int a, int b);

  void SendToCoordinator(int node, v1::NodeMessage message);
  void WakeCoordinator();
  void TickCoordinator();
  void Receive(int node, const v1::CoordinatorMessage& message);
  void OnMade(int node, std::uint32_t number, const v1::CommunicatorMade& made);
  void OnRefused(int node, const v1::CommunicatorRefused& refused);
  void OnEnded(One& one, int node);
  void LoseRank(const Loss& loss);
  void Fail(int node, const std::string& cause);

  int NodeOfRank(int rank) const;
  bool IsGone(const Thread& thread) const;
  bool IsOver(const One& one) const;
  bool AllOver() const;
  void Report(std::string finding) { findings_.push_back(std::move(finding)); }
  bool AnyFindings() const;
  CommunicatorsOutcome Conclude();

  const CommunicatorsScenario& scenario_;
  Random random_;
  EventQueue events_;
  Network network_;
  JobCoordinator coordinator_;
  std::vector<int> first_rank_;  // by node
  std::deque<One> communicators_;
  std::vector<bool> failed_;  // by node: it has heard that the job has failed
  bool coordinator_awake_ = false;
  std::size_t refused_ = 0;
  std::vector<std::string> findings_;
};

}  // namespace ringd::simulation

#endif  // RINGD_TESTS_SIMULATION_COMMUNICATORS_H_
