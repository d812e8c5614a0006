// A node: a real scheduler, by name or by order, and around it what the engine does for it.
#ifndef RINGD_TESTS_SIMULATION_SIMULATED_NODE_H_
#define RINGD_TESTS_SIMULATION_SIMULATED_NODE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "daemon/jobs/membership/agreed_cause.h"
#include "daemon/schedule/node/operation_scheduler.h"
#include "tests/simulation/data_plane.h"
#include "tests/simulation/ledger.h"
#include "tests/simulation/rank_thread.h"
#include "tests/simulation/scenario.h"

namespace ringd::simulation {

// Thread safety: none.
// Ownership: borrows the ledger, the data plane and the rank threads.
class SimulatedNode final : public LocalRankView {
 public:
  struct Wiring {
    std::function<void(NodeMessage)> send;  // to the coordinator
    std::function<void()> wake_ranks;       // some submissions have ended
  };

  SimulatedNode(int index, Rank first_rank, int rank_count, const Scenario& scenario,
                DataPlane& data_plane, Ledger& ledger, Wiring wiring);

  void AddThread(const RankThread* thread) { threads_.push_back(thread); }

  void Submit(Submission& submission, bool follows_wait, TimePoint now);
  void Receive(const CoordinatorMessage& message, TimePoint now);
  // The coordinator asks for this node's description of an operation.
  void Inquire(const std::string& name);
  // A message of another node's does not fit the operation, if it is under way.
  void OnDifference(OperationId operation);
  // An operation that was sent is done at this node.
  void Complete(OperationId operation, TimePoint now);
  // One turn of the engine's loop: patience, then actions.
  void RunLoop(TimePoint now);
  std::optional<TimePoint> NextTick() const { return scheduler_->NextTick(); }

  // This node has seen why the job can't go on: as Job, it tells the coordinator (if true) and goes
  // on with nothing until that has answered.
  bool Propose(const absl::Status& cause) { return agreed_.Propose(cause); }
  std::optional<absl::Status> Unanswered(TimePoint now) { return agreed_.Unanswered(now); }
  // Ends everything, now and from now on. False: that has happened.
  bool Decide(const absl::Status& cause);
  bool pending() const { return agreed_.pending(); }
  bool ended() const { return agreed_.decided(); }

  Rank first_rank() const { return first_rank_; }
  int rank_count() const { return rank_count_; }
  std::size_t in_flight() const { return in_flight_; }                        // submissions
  std::uint64_t launched_operations() const { return launched_operations_; }  // learned ones
  std::uint64_t unsent_operations() const { return unsent_operations_; }

  NodeSchedulerStatus Status() const { return scheduler_->Status(); }
  // What is stuck, for a person.
  std::string DescribePending() const;

  bool AbsentRanksAreBlocked(TensorHandle missing) const override;

 private:
  struct Tensor {
    bool outstanding = false;                    // the scheduler has it
    bool running = false;                        // as part of an operation
    std::vector<std::deque<Submission*>> queue;  // by local rank
  };

  bool goes_on() const { return !pending() && !ended(); }
  void ReportIfReady(TensorHandle handle, TimePoint now);
  // By order, nodes start operations in that of their numbers: else they may wait for each other.
  void CheckOrder(OperationId operation);
  // What nobody sends is done as soon as it has begun.
  void CompleteUnsent(const std::vector<Action>& actions, TimePoint now);
  void Apply(const Action& action);
  void Start(const StartOperation& start);
  void EndOccurrence(Tensor& tensor, const std::function<void(Submission&)>& end);
  std::size_t LocalIndex(const Submission& submission) const {
    return static_cast<std::size_t>(submission.rank - first_rank_.value());
  }

  const int index_;
  const Rank first_rank_;
  const int rank_count_;
  const Scenario& scenario_;
  DataPlane& data_plane_;
  Ledger& ledger_;
  const Wiring wiring_;
  const std::unique_ptr<OperationScheduler> scheduler_;
  std::vector<const RankThread*> threads_;
  std::map<TensorHandle, Tensor> tensors_;
  std::unordered_map<OperationId, TensorList> running_;
  std::map<TensorHandle, bool> follows_wait_;
  std::size_t in_flight_ = 0;
  std::uint64_t ready_count_ = 0;
  std::uint64_t launched_operations_ = 0;
  std::uint64_t unsent_operations_ = 0;
  std::uint64_t next_number_ = 0;  // above all operations that were started, by order
  AgreedCause agreed_;
};

}  // namespace ringd::simulation

#endif  // RINGD_TESTS_SIMULATION_SIMULATED_NODE_H_
