// What one simulated job does: its nodes, its ranks' programs, its network and its misfortunes.
//
// A program is a list of phases. In a phase every rank submits the same tensors, in the same or in
// its own order; it may wait for tensors of earlier phases at any point, and for tensors of its own
// phase after it has submitted them all. Such a program never deadlocks if tensors are reduced one
// by one: a rank in the earliest phase waits only for what all ranks have submitted. So whatever
// hangs in the simulation is the scheduler's fault.
#ifndef RINGD_TESTS_SIMULATION_SCENARIO_H_
#define RINGD_TESTS_SIMULATION_SCENARIO_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/schedule/coordinator/coordinator.h"
#include "daemon/schedule/planning/kept_plan.h"
#include "daemon/schedule/protocol/tensor_meta.h"

namespace ringd::simulation {

struct PhaseTensor {
  std::string name;
  TensorMeta meta;
  // The rank that describes the tensor otherwise, if any, and how.
  std::optional<int> deviating_rank;
  TensorMeta deviating_meta;
};

struct Phase {
  std::vector<PhaseTensor> tensors;
  bool own_order = false;         // each rank submits in an order of its own
  int wait_percent = 0;           // chance, before each submission, to wait for something earlier
  bool wait_for_all = true;       // at the end; otherwise at most for some
  bool external_barrier = false;  // ranks then meet outside of ringd, where it can't see them wait
  std::chrono::nanoseconds compute{0};  // up to this long before each submission
};
using Program = std::vector<Phase>;

// What the engine can tell the scheduler about dependencies between submissions.
enum class WaitKnowledge { kNone, kFollowsWait, kPipelineEmpty };

struct Pause {
  int node = 0;
  std::chrono::nanoseconds at{0};
  std::chrono::nanoseconds duration{0};
};

// A node is lost with its ranks, or one rank alone; neither comes back.
struct Loss {
  int node = 0;
  std::optional<int> rank;  // on that node
  // The node goes with its host: of what it has sent, on each stream, only the first part arrives,
  // and transfers in which it took part end on some nodes and not on others.
  bool with_host = false;
  std::chrono::nanoseconds at{0};
  std::chrono::nanoseconds noticed_within{
      0};  // by whoever can notice it, each at a time of its own
};

struct Scenario {
  std::string kind;
  std::uint64_t seed = 0;
  std::vector<int> ranks_on_node;  // one entry per node
  // One per thread of a rank; the threads' tensors have different names.
  std::vector<Program> programs;
  int steps = 0;  // of training, of which a program's phases are parts

  WaitKnowledge wait_knowledge = WaitKnowledge::kFollowsWait;
  bool blocked_ranks_visible = true;
  bool learn = true;
  // Some ranks have streams, which wait for operations now and then.
  bool streams_wait = false;
  bool by_order = false;  // operations are matched by order, whatever their tensors are called
  std::size_t fusion_threshold_bytes = std::size_t{64} << 20;
  std::size_t max_bucket_bytes = std::size_t{64} << 20;
  std::size_t max_buckets = CoordinatorConfig{}.max_buckets;

  std::chrono::nanoseconds message_delay = std::chrono::microseconds(100);   // up to
  std::chrono::nanoseconds transfer_delay = std::chrono::microseconds(500);  // up to
  std::chrono::nanoseconds loop_delay = std::chrono::microseconds(20);       // up to

  std::vector<Pause> pauses;
  std::vector<std::chrono::nanoseconds> replans;
  // Nodes then measure another link: the coordinator decides whether it plans anew.
  struct LinkChange {
    std::chrono::nanoseconds at{0};
    std::chrono::nanoseconds latency{0};
    double bytes_per_second = 0;
  };
  std::vector<LinkChange> link_changes;
  // What an earlier run of this job has learned; null if there was none.
  std::shared_ptr<const KeptPlan> kept_plan;
  std::vector<Loss> losses;

  // From this phase of the first program on, not one message may be sent.
  std::optional<std::size_t> silent_from_phase;
  // No bucket may be broken.
  bool expect_no_breaks = false;
};

// The kind of a seed's scenario: one of kKindCount, one after the other.
inline constexpr std::uint64_t kKindCount = 18;
const char* KindOf(std::uint64_t seed);

// The scenario of a seed. `nodes` overrides the number of nodes if positive.
Scenario MakeScenario(std::uint64_t seed, int nodes);

}  // namespace ringd::simulation

#endif  // RINGD_TESTS_SIMULATION_SCENARIO_H_
