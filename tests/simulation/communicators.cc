#include "tests/simulation/communicators.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "daemon/peers/schedule_conversion.h"
#include "daemon/schedule/protocol/ordered_name.h"
#include "tests/simulation/joining.h"

namespace ringd::simulation {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr nanoseconds kTimeLimit = std::chrono::minutes(10);
constexpr std::uint32_t kPatienceMs = 30'000;
constexpr std::uint32_t kShortPatienceMs = 200;  // for what never comes

JobCoordinator::Options MakeOptions(const Scenario& scenario) {
  JobCoordinator::Options options;
  options.job_id = "job";
  options.size = std::accumulate(scenario.ranks_on_node.begin(), scenario.ranks_on_node.end(), 0);
  options.start_timeout = std::chrono::minutes(1);
  options.fusion_threshold_bytes = std::size_t{64} << 20;
  return options;
}

}  // namespace

CommunicatorsWorld::CommunicatorsWorld(const CommunicatorsScenario& scenario)
    : scenario_(scenario),
      random_(scenario.seed * 2 + 1),
      network_(scenario.job, events_, random_.Fork()),
      coordinator_(MakeOptions(scenario.job), this, events_.now()),
      failed_(scenario.job.ranks_on_node.size(), false) {
  QuietLog();
  int first = 0;
  std::vector<MemberNode> nodes;
  for (int node = 0; node < static_cast<int>(scenario.job.ranks_on_node.size()); ++node) {
    const int count = scenario.job.ranks_on_node[static_cast<std::size_t>(node)];
    first_rank_.push_back(first);
    nodes.push_back(DescribeNode(node, first, count));
    first += count;
  }
  for (const PlannedCommunicator& planned : scenario.planned) {
    One& one = communicators_.emplace_back();
    one.plan = &planned;
    AddThreads(one);
    const int node_count = static_cast<int>(one.nodes.size());
    one.ledger = std::make_unique<Ledger>(planned.use.ranks_on_node);
    one.data_plane = std::make_unique<DataPlane>(
        node_count, *one.ledger,
        [this, &one](OperationId operation) { OnStartedEverywhere(one, operation); });
    if (planned.use.by_order) {
      one.data_plane->MatchByOrder([this, &one](OperationId operation, int a, int b) {
        OnDifference(one, operation, a, b);
      });
    }
  }
  if (!JoinAll(coordinator_, nodes, events_.now())) Report("the job did not start");
}

int CommunicatorsWorld::NodeOfRank(int rank) const {
  const auto after = std::upper_bound(first_rank_.begin(), first_rank_.end(), rank);
  return static_cast<int>(after - first_rank_.begin()) - 1;
}

void CommunicatorsWorld::AddThreads(One& one) {
  std::vector<int> ranks = one.plan->ranks;
  std::sort(ranks.begin(), ranks.end());
  for (int place = 0; place < static_cast<int>(ranks.size()); ++place) {
    const int rank = ranks[static_cast<std::size_t>(place)];
    const int node = NodeOfRank(rank);
    if (one.nodes.empty() || one.nodes.back() != node) one.nodes.push_back(node);
    one.parts[node];
    one.threads.emplace_back(rank, node, place, one.plan->use.programs.front(), random_.Fork());
  }
}

CommunicatorsOutcome CommunicatorsWorld::Run() {
  for (One& one : communicators_) {
    for (Thread& thread : one.threads) {
      if (one.plan->absent_rank == thread.rank) {
        thread.over = true;
        continue;
      }
      network_.AtNode(thread.node, network_.Upto(milliseconds(60)),
                      [this, &one, &thread] { Ask(one, thread); });
    }
  }
  if (scenario_.loss.has_value()) {
    events_.After(scenario_.loss->at, [this] { LoseRank(*scenario_.loss); });
  }
  TickCoordinator();
  const TimePoint limit = events_.now() + kTimeLimit;
  while (!AllOver() && events_.now() < limit && !AnyFindings()) {
    if (!events_.RunOne()) break;
  }
  return Conclude();
}

// ---- ranks ------------------------------------------------------------------------------------

bool CommunicatorsWorld::IsGone(const Thread& thread) const {
  const bool lost = scenario_.loss.has_value() && scenario_.loss->rank == thread.rank &&
                    events_.now() - TimePoint() >= scenario_.loss->at;
  return lost || failed_[static_cast<std::size_t>(thread.node)];
}

void CommunicatorsWorld::Ask(One& one, Thread& thread) {
  if (IsGone(thread)) return;
  thread.asked = true;
  v1::NodeMessage message;
  v1::CommunicatorAsk& ask = *message.mutable_communicator_ask();
  ask.set_rank(thread.rank);
  ask.set_name(one.plan->name);
  ask.set_by_order(one.plan->use.by_order);
  for (const int rank : one.plan->ranks) ask.add_ranks(rank);
  ask.set_timeout_ms(one.plan->absent_rank.has_value() ? kShortPatienceMs : kPatienceMs);
  SendToCoordinator(thread.node, std::move(message));
}

void CommunicatorsWorld::AdvanceThreads(One& one, int node) {
  for (Thread& thread : one.threads) {
    if (thread.node == node) AdvanceThread(one, thread);
  }
}

void CommunicatorsWorld::AdvanceThread(One& one, Thread& thread) {
  Part& part = one.parts.at(thread.node);
  while (thread.made && !thread.busy && !thread.over && !IsGone(thread)) {
    std::erase_if(thread.open, [](const Submission* submission) { return submission->ended; });
    if (part.simulated == nullptr) return Destroy(one, thread);
    const RankThread::Step step = thread.program.Next();
    if (step.need == RankThread::Need::kSubmission) {
      if (one.plan->use.by_order) {
        step.submission->by_order = true;
        step.submission->name = OrderedName(thread.submitted++);
        step.submission->occurrence = 0;
      }
      thread.open.push_back(step.submission);
      one.ledger->OnSubmitted(*step.submission);
      part.simulated->Submit(*step.submission, thread.program.TakeWaited(), events_.now());
      WakeLoop(one, thread.node);
    } else if (step.need == RankThread::Need::kCompute) {
      thread.busy = true;
      network_.AtNode(thread.node, step.compute, [this, &one, &thread] {
        thread.busy = false;
        AdvanceThread(one, thread);
      });
    } else {
      if (thread.program.done() && thread.open.empty()) Destroy(one, thread);
      return;
    }
  }
}

void CommunicatorsWorld::Destroy(One& one, Thread& thread) {
  thread.over = true;
  v1::NodeMessage message;
  message.set_communicator(one.number);
  message.mutable_communicator_drop()->set_rank(thread.rank);
  SendToCoordinator(thread.node, std::move(message));
}

// ---- nodes ------------------------------------------------------------------------------------

void CommunicatorsWorld::MakeNode(One& one, int node) {
  const auto index = std::find(one.nodes.begin(), one.nodes.end(), node) - one.nodes.begin();
  const std::vector<int>& counts = one.plan->use.ranks_on_node;
  const int first = std::accumulate(counts.begin(), counts.begin() + index, 0);
  SimulatedNode::Wiring wiring;
  wiring.send = [this, &one, node](const NodeMessage& scheduling) {
    v1::NodeMessage message = ToProto(scheduling);
    message.set_communicator(one.number);
    SendToCoordinator(node, std::move(message));
  };
  wiring.wake_ranks = [this, &one, node] {
    network_.AtNode(node, network_.Upto(one.plan->use.loop_delay),
                    [this, &one, node] { AdvanceThreads(one, node); });
  };
  Part& part = one.parts.at(node);
  part.simulated = std::make_unique<SimulatedNode>(
      static_cast<int>(index), Rank(first), counts[static_cast<std::size_t>(index)], one.plan->use,
      *one.data_plane, *one.ledger, std::move(wiring));
  for (const Thread& thread : one.threads) {
    if (thread.node == node) part.simulated->AddThread(&thread.program);
  }
}

void CommunicatorsWorld::WakeLoop(One& one, int node) {
  Part& part = one.parts.at(node);
  if (std::exchange(part.loop_awake, true)) return;
  network_.AtNode(node, network_.Upto(one.plan->use.loop_delay), [this, &one, &part, node] {
    part.loop_awake = false;
    if (part.ended) return;
    part.simulated->RunLoop(events_.now());
    const std::optional<TimePoint> tick = part.simulated->NextTick();
    if (tick && !part.simulated->ended() && !part.simulated->pending()) {
      network_.AtNode(node, std::max(*tick - events_.now(), nanoseconds(0)),
                      [this, &one, node] { WakeLoop(one, node); });
    }
  });
}

void CommunicatorsWorld::OnStartedEverywhere(One& one, OperationId operation) {
  for (const int node : one.nodes) {
    network_.AtNode(node, network_.Upto(one.plan->use.transfer_delay),
                    [this, &one, node, operation] {
                      one.parts.at(node).simulated->Complete(operation, events_.now());
                      WakeLoop(one, node);
                    });
  }
}

// One of the two hears of it, or both.
void CommunicatorsWorld::OnDifference(One& one, OperationId operation, int a, int b) {
  const int who = random_.Int(0, 2);
  for (const int index : {a, b}) {
    if ((who == 0 && index == b) || (who == 1 && index == a)) continue;
    const int node = one.nodes[static_cast<std::size_t>(index)];
    network_.AtNode(node, network_.Upto(one.plan->use.transfer_delay),
                    [this, &one, node, operation] {
                      one.parts.at(node).simulated->OnDifference(operation);
                      WakeLoop(one, node);
                    });
  }
}

// ---- ends ----------------------------------------------------------------------------------

void CommunicatorsWorld::LoseRank(const Loss& loss) {
  const int node = NodeOfRank(*loss.rank);
  const std::string cause = "rank " + std::to_string(*loss.rank) + " was killed";
  for (One& one : communicators_) one.ledger->Allow(cause);
  network_.AtNode(node, network_.Upto(loss.noticed_within), [this, node, cause] {
    // Nothing goes on there in any communicator until the coordinator has answered.
    for (One& one : communicators_) {
      const auto part = one.parts.find(node);
      if (part == one.parts.end() || part->second.simulated == nullptr) continue;
      static_cast<void>(part->second.simulated->Propose(absl::AbortedError(cause)));
    }
    v1::NodeMessage message;
    message.mutable_failure()->set_code(static_cast<int>(absl::StatusCode::kAborted));
    message.mutable_failure()->set_text(cause);
    SendToCoordinator(node, std::move(message));
  });
}

void CommunicatorsWorld::Fail(int node, const std::string& cause) {
  if (!scenario_.loss.has_value()) Report("the job fails: " + cause);
  if (failed_[static_cast<std::size_t>(node)])
    Report("node-" + std::to_string(node) + " fails twice");
  failed_[static_cast<std::size_t>(node)] = true;
  for (One& one : communicators_) {
    const auto part = one.parts.find(node);
    if (part == one.parts.end() || part->second.simulated == nullptr) continue;
    static_cast<void>(part->second.simulated->Decide(absl::AbortedError(cause)));
  }
}

bool CommunicatorsWorld::IsOver(const One& one) const {
  if (!std::all_of(one.threads.begin(), one.threads.end(),
                   [this](const Thread& thread) { return thread.over || IsGone(thread); })) {
    return false;
  }
  return std::all_of(one.parts.begin(), one.parts.end(), [this, &one](const auto& entry) {
    const auto& [node, part] = entry;
    const auto index = std::find(one.nodes.begin(), one.nodes.end(), node) - one.nodes.begin();
    if (one.ledger->Open(static_cast<int>(index)) > 0) return false;
    return part.number == 0 || part.ended || failed_[static_cast<std::size_t>(node)];
  });
}

bool CommunicatorsWorld::AllOver() const {
  const bool heard = !scenario_.loss.has_value() || std::all_of(failed_.begin(), failed_.end(),
                                                                [](bool failed) { return failed; });
  return heard && std::all_of(communicators_.begin(), communicators_.end(),
                              [this](const One& one) { return IsOver(one); });
}

bool CommunicatorsWorld::AnyFindings() const {
  return !findings_.empty() ||
         std::any_of(communicators_.begin(), communicators_.end(),
                     [](const One& one) { return !one.ledger->findings().empty(); });
}

CommunicatorsOutcome CommunicatorsWorld::Conclude() {
  if (!AnyFindings() && !AllOver()) {
    std::string text = "hangs:";
    for (const One& one : communicators_) {
      if (!IsOver(one)) text += " " + one.plan->name;
    }
    Report(text);
  }
  CommunicatorsOutcome outcome;
  outcome.findings = findings_;
  outcome.refused = refused_;
  outcome.failed = std::find(failed_.begin(), failed_.end(), true) != failed_.end();
  for (One& one : communicators_) {
    if (!outcome.failed && outcome.findings.empty()) one.data_plane->ReportLeftovers();
    for (const std::string& finding : one.ledger->findings()) {
      outcome.findings.push_back(one.plan->name + ": " + finding);
    }
    outcome.submissions += one.ledger->submitted();
    if (one.plan->use.by_order) {
      outcome.by_order += one.ledger->submitted();
      outcome.differed += one.ledger->failed();
    }
    outcome.made += one.number != 0 ? 1 : 0;
    outcome.ended += std::all_of(one.parts.begin(), one.parts.end(),
                                 [](const auto& entry) { return entry.second.ended; })
                         ? 1
                         : 0;
  }
  return outcome;
}

}  // namespace ringd::simulation
