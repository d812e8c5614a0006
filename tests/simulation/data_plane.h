// The simulated wire: sums operations over nodes, and insists on what a real one could not check.
#ifndef RINGD_TESTS_SIMULATION_DATA_PLANE_H_
#define RINGD_TESTS_SIMULATION_DATA_PLANE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "daemon/schedule/protocol/tensor_meta.h"
#include "proto/types/ids.h"
#include "tests/simulation/ledger.h"

namespace ringd::simulation {

// A tensor as a node brings it into an operation.
struct Contribution {
  std::string name;
  TensorMeta meta;
  std::int64_t sum = 0;  // of the node's ranks
};

// An operation completes only after all nodes have started it with the same list of tensors; but a
// node sends nothing for one without content that all have negotiated, and is done with it at once.
// Those that need a launch have one order on all nodes, and nobody takes them back.
// By order, nodes may bring different descriptions: such an operation completes nowhere, and some
// node sees that, perhaps not all.
//
// Thread safety: none.
class DataPlane {
 public:
  // `on_started_everywhere(operation)` is called when the last node starts one that is sent.
  DataPlane(int node_count, Ledger& ledger, std::function<void(OperationId)> on_started_everywhere);

  // Operations are matched by order. `on_difference(operation, a, b)` is called where nodes a and b
  // have started one, and differ.
  void MatchByOrder(std::function<void(OperationId, int, int)> on_difference) {
    on_difference_ = std::move(on_difference);
  }

  void Start(int node, OperationId operation, const std::vector<Contribution>& contributions);
  void Cancel(int node, OperationId operation);
  // The node has got a message that does not fit, and has given it up.
  void GiveUp(int node, OperationId operation);
  // Notes that the node is done, and returns the sums, one per tensor.
  std::vector<std::int64_t> Complete(int node, OperationId operation);
  bool IsRunningAt(int node, OperationId operation) const;
  // False: the node completes it by itself.
  bool IsSent(OperationId operation) const { return operations_.at(operation).is_sent; }
  // Operations that nodes began and neither completed nor took back. Call it when the job is over.
  void ReportLeftovers();

 private:
  struct Operation {
    std::vector<Contribution> contributions;  // of the first node; sums of all
    std::vector<bool> running;                // by node
    std::vector<bool> begun;                  // by node, also when it is over
    int started = 0;
    int completed = 0;
    bool is_sent = true;
    bool cancelled = false;
    bool differs = false;
    int first = 0;  // the node that has started it first
    bool is_launched = false;
  };

  void CheckLaunchOrder(int node, OperationId operation);

  const int node_count_;
  Ledger& ledger_;
  const std::function<void(OperationId)> on_started_everywhere_;
  std::function<void(OperationId, int, int)> on_difference_;  // empty: they are matched by name
  std::map<OperationId, Operation> operations_;
  std::vector<OperationId> launches_;     // in the order of the node that is ahead
  std::vector<std::size_t> launched_at_;  // by node: how many of them
};

}  // namespace ringd::simulation

#endif  // RINGD_TESTS_SIMULATION_DATA_PLANE_H_
