#include "tests/simulation/cluster.h"

#include <algorithm>
#include <string>
#include <utility>

namespace ringd::simulation {
namespace {

using std::chrono::nanoseconds;

// No scenario takes nearly this long unless it hangs.
constexpr nanoseconds kTimeLimit = std::chrono::minutes(10);

CoordinatorConfig MakeConfig(const Scenario& scenario) {
  CoordinatorConfig config;
  for (std::size_t i = 0; i < scenario.ranks_on_node.size(); ++i) {
    config.node_names.push_back("node-" + std::to_string(i));
  }
  config.fusion_threshold_bytes = scenario.fusion_threshold_bytes;
  config.learn = scenario.learn;
  config.max_buckets = scenario.max_buckets;
  if (scenario.kept_plan != nullptr) config.kept_plans.push_back(scenario.kept_plan);
  return config;
}

// Plans may follow one another so fast that the changes meet.
PlanTuner::Options TunerOptions() {
  PlanTuner::Options options;
  options.least_gain = {0.01, nanoseconds(1)};
  options.first_pause = options.first_search_pause = nanoseconds(0);
  return options;
}

}  // namespace

Cluster::Cluster(const Scenario& scenario)
    : scenario_(scenario),
      random_(scenario.seed * 2 + 1),
      story_(events_),
      ledger_(scenario.ranks_on_node),
      network_(scenario, events_, random_.Fork()),
      data_plane_(static_cast<int>(scenario.ranks_on_node.size()), ledger_,
                  [this](OperationId operation) { OnStartedEverywhere(operation); }),
      coordinator_(MakeConfig(scenario),
                   std::make_unique<CostModelPlanner>(scenario.max_bucket_bytes)),
      tuner_(TunerOptions(), LinkModel(), LinkSource::kAssumed, scenario.ranks_on_node.size()),
      losses_({scenario, events_, network_, ledger_, story_, nodes_,
               [this] {
                 for (std::size_t kind = 0; kind < scenario_.programs.size(); ++kind) {
                   OpenBarriers(kind);
                 }
               }}),
      loop_awake_(scenario.ranks_on_node.size(), false) {
  int rank = 0;
  for (int node = 0; node < static_cast<int>(scenario.ranks_on_node.size()); ++node) {
    const int count = scenario.ranks_on_node[static_cast<std::size_t>(node)];
    SimulatedNode::Wiring wiring;
    wiring.send = [this, node](NodeMessage message) {
      SendToCoordinator(node, std::move(message));
    };
    wiring.wake_ranks = [this, node] {
      network_.AtNode(node, network_.Upto(scenario_.loop_delay),
                      [this, node] { AdvanceNode(node); });
    };
    nodes_.push_back(std::make_unique<SimulatedNode>(node, Rank(rank), count, scenario_,
                                                     data_plane_, ledger_, std::move(wiring)));
    for (int i = 0; i < count; ++i, ++rank) {
      for (std::size_t kind = 0; kind < scenario.programs.size(); ++kind) {
        threads_.push_back({RankThread(rank, scenario.programs[kind], random_.Fork()), node, kind});
        nodes_.back()->AddThread(&threads_.back().program);
      }
    }
  }
}

Cluster::~Cluster() = default;

Outcome Cluster::Run() {
  for (Thread& thread : threads_) {
    network_.AtNode(thread.node, network_.Upto(std::chrono::milliseconds(5)),
                    [&] { AdvanceThread(thread); });
  }
  for (nanoseconds at : scenario_.replans) {
    events_.After(at, [this] {
      story_.Tell("the coordinator plans anew");
      coordinator_.Replan();
      WakeCoordinator();
    });
  }
  for (const Scenario::LinkChange& change : scenario_.link_changes) {
    events_.After(change.at, [this, &change] { Measure(change); });
  }
  losses_.Begin();
  const TimePoint limit = events_.now() + kTimeLimit;
  while (!AllEnded() && events_.now() < limit && ledger_.findings().empty()) {
    if (!events_.RunOne()) break;
  }
  return Conclude();
}

// ---- ranks ------------------------------------------------------------------------------------

void Cluster::AdvanceNode(int node) {
  for (Thread& thread : threads_) {
    if (thread.node == node) AdvanceThread(thread);
  }
}

void Cluster::AdvanceThread(Thread& thread) {
  if (thread.busy || thread.at_barrier || IsGone(thread)) return;
  for (;;) {
    const RankThread::Step step = thread.program.Next();
    WatchForSilence();
    switch (step.need) {
      case RankThread::Need::kNothing:
        return;
      case RankThread::Need::kCompute:
        thread.busy = true;
        network_.AtNode(thread.node, step.compute, [this, &thread] {
          thread.busy = false;
          AdvanceThread(thread);
        });
        return;
      case RankThread::Need::kBarrier:
        thread.at_barrier = true;
        OpenBarriers(thread.kind);
        return;
      case RankThread::Need::kSubmission:
        ledger_.OnSubmitted(*step.submission);
        nodes_[static_cast<std::size_t>(thread.node)]->Submit(
            *step.submission, thread.program.TakeWaited(), events_.now());
        WakeLoop(thread.node);
        break;
    }
  }
}

// Lets go of the threads whose phase all others of their kind have reached. Whoever is lost is not
// waited for: the ranks notice that outside of ringd, too.
void Cluster::OpenBarriers(std::size_t kind) {
  std::size_t reached = SIZE_MAX;
  for (const Thread& thread : threads_) {
    if (thread.kind == kind && !IsGone(thread)) {
      reached = std::min(reached, thread.program.phase());
    }
  }
  for (Thread& thread : threads_) {
    if (thread.kind != kind || !thread.at_barrier || thread.program.phase() > reached) continue;
    thread.at_barrier = false;
    network_.AtNode(thread.node, network_.Upto(scenario_.message_delay),
                    [this, &thread] { AdvanceThread(thread); });
  }
}

void Cluster::WatchForSilence() {
  if (!scenario_.silent_from_phase || messages_when_silent_) return;
  const bool reached = std::all_of(threads_.begin(), threads_.end(), [&](const Thread& thread) {
    return thread.program.phase() >= *scenario_.silent_from_phase;
  });
  if (reached) messages_when_silent_ = network_.messages();
}

// ---- nodes ------------------------------------------------------------------------------------

void Cluster::WakeLoop(int node) {
  const auto index = static_cast<std::size_t>(node);
  if (loop_awake_[index]) return;
  loop_awake_[index] = true;
  network_.AtNode(node, network_.Upto(scenario_.loop_delay), [this, node, index] {
    loop_awake_[index] = false;
    nodes_[index]->RunLoop(events_.now());
    const std::optional<TimePoint> tick = nodes_[index]->NextTick();
    if (tick && !nodes_[index]->ended() && !nodes_[index]->pending()) {
      network_.AtNode(node, std::max(*tick - events_.now(), nanoseconds(0)),
                      [this, node] { WakeLoop(node); });
    }
  });
}

void Cluster::OnStartedEverywhere(OperationId operation) {
  for (int node = 0; node < static_cast<int>(nodes_.size()); ++node) {
    network_.AtNode(node, network_.Upto(scenario_.transfer_delay), [this, node, operation] {
      if (network_.lost_a_host() && random_.Chance(50)) return;  // it had not passed on its part
      nodes_[static_cast<std::size_t>(node)]->Complete(operation, events_.now());
      WakeLoop(node);
    });
  }
}

// What all nodes would have measured of this link, and how the coordinator takes it.
void Cluster::Measure(const Scenario::LinkChange& change) {
  LinkModel link;
  link.latency = change.latency;
  link.bytes_per_second = change.bytes_per_second;
  link.node_count = static_cast<int>(nodes_.size());
  for (int node = 0; node < link.node_count; ++node) {
    NodeMeasurements measured;
    for (const std::size_t bytes : {std::size_t{64}, std::size_t{1} << 16, std::size_t{1} << 26}) {
      measured.link.push_back({bytes, link.AllReduceTime(bytes) - link.operation_overhead, 8});
    }
    for (const auto& bucket : coordinator_.Status().buckets) {
      for (const std::string& tensor : bucket.tensors) {
        measured.readiness.push_back({tensor, network_.Upto(std::chrono::milliseconds(5))});
      }
    }
    tuner_.OnMeasurements(NodeIndex(node), std::move(measured));
  }
  tuner_.Tune(coordinator_, events_.now());
  WakeCoordinator();
}

// ---- the network ------------------------------------------------------------------------------

void Cluster::SendToCoordinator(int node, NodeMessage message) {
  network_.ToCoordinator(node, [this, node, message = std::move(message)] {
    if (losses_.told()) return;
    const absl::Status status = coordinator_.OnMessage(NodeIndex(node), message, events_.now());
    if (!status.ok()) ledger_.Report("coordinator: " + std::string(status.message()));
    WakeCoordinator();
  });
}

void Cluster::WakeCoordinator() {
  if (coordinator_awake_) return;
  coordinator_awake_ = true;
  network_.AtNode(0, network_.Upto(scenario_.loop_delay), [this] {
    coordinator_awake_ = false;
    if (losses_.told()) return;
    std::vector<CoordinatorMessage> messages;
    coordinator_.Flush(events_.now(), messages);
    Broadcast(messages);
  });
}

void Cluster::Broadcast(const std::vector<CoordinatorMessage>& messages) {
  for (const CoordinatorMessage& message : messages) {
    Tell(message);
    for (int node = 0; node < static_cast<int>(nodes_.size()); ++node) {
      network_.ToNode(node, [this, node, message] {
        nodes_[static_cast<std::size_t>(node)]->Receive(message, events_.now());
        WakeLoop(node);
      });
    }
  }
}

void Cluster::Tell(const CoordinatorMessage& message) {
  if (const auto* schedule = std::get_if<Schedule>(&message)) {
    std::size_t tensors = 0;
    for (const ScheduledBucket& bucket : schedule->buckets) tensors += bucket.tensors.size();
    story_.Tell("learned: " + std::to_string(tensors) + " tensors in " +
                std::to_string(schedule->buckets.size()) + " buckets");
  } else if (const auto* freeze = std::get_if<Freeze>(&message)) {
    story_.Tell("channel " + std::to_string(freeze->channel) + " is taken out of service");
  } else if (const auto* failure = std::get_if<FailTensor>(&message)) {
    story_.Tell("an operation fails: " + failure->error);
  }
}

// ---- the end ----------------------------------------------------------------------------------

bool Cluster::IsGone(const Thread& thread) const {
  return network_.IsLost(thread.node) || losses_.IsLost(thread.program.rank());
}

bool Cluster::AllEnded() const {
  // What was submitted on a lost node is gone with it; a lost rank's node still owes it an end.
  for (int node = 0; node < static_cast<int>(nodes_.size()); ++node) {
    if (!network_.IsLost(node) && ledger_.Open(node) > 0) return false;
  }
  const bool all_done = std::all_of(threads_.begin(), threads_.end(), [this](const Thread& thread) {
    return IsGone(thread) || thread.program.done();
  });
  return all_done && losses_.AllHaveHeard();
}

Outcome Cluster::Conclude() {
  Outcome outcome;
  if (ledger_.findings().empty() && !AllEnded()) {
    std::string text = "hangs after " + std::to_string(ledger_.ended()) + " of " +
                       std::to_string(ledger_.submitted()) + " submissions:\n";
    for (const auto& node : nodes_) text += node->DescribePending();
    ledger_.Report(text);
  }
  if (ledger_.findings().empty() && losses_.count() == 0) data_plane_.ReportLeftovers();
  const CoordinatorStatus status = coordinator_.Status();
  for (std::uint64_t breaks : status.breaks) outcome.breaks += breaks;
  outcome.breaks -= status.breaks[static_cast<int>(BreakReason::kReplan)];
  if (scenario_.expect_no_breaks && outcome.breaks > 0) {
    ledger_.Report("broke " + std::to_string(outcome.breaks) + " buckets without need");
  }
  if (messages_when_silent_ && *messages_when_silent_ != network_.messages()) {
    ledger_.Report("sent " + std::to_string(network_.messages() - *messages_when_silent_) +
                   " messages in the steady state");
  }
  for (const auto& node : nodes_) {
    outcome.learned_operations += node->Status().operations_learned;
    outcome.launched_operations += node->launched_operations();
    outcome.cancelled_operations += node->Status().operations_cancelled;
    outcome.unsent_operations += node->unsent_operations();
  }
  outcome.findings = ledger_.findings();
  outcome.submissions = ledger_.submitted();
  outcome.messages = network_.messages();
  outcome.schedules = status.schedules_sent;
  outcome.replans = status.replans;
  outcome.origin = status.origin;
  outcome.learned = coordinator_.Learned();
  outcome.losses = losses_.count();
  outcome.overruled = losses_.overruled();
  outcome.buckets = status.buckets.size();
  outcome.cause = ledger_.cause();
  outcome.is_divided = ledger_.is_divided();
  outcome.story = story_.lines();
  outcome.duration = events_.now() - TimePoint();
  return outcome;
}

}  // namespace ringd::simulation
