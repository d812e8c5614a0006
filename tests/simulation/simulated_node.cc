#include "tests/simulation/simulated_node.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

namespace ringd::simulation {
namespace {

NodeSchedulerConfig MakeConfig(Rank first_rank) {
  NodeSchedulerConfig config;
  config.first_rank = first_rank;
  return config;
}

}  // namespace

SimulatedNode::SimulatedNode(int index, Rank first_rank, int rank_count, const Scenario& scenario,
                             DataPlane& data_plane, Ledger& ledger, Wiring wiring)
    : index_(index),
      first_rank_(first_rank),
      rank_count_(rank_count),
      scenario_(scenario),
      data_plane_(data_plane),
      ledger_(ledger),
      wiring_(std::move(wiring)),
      scheduler_(MakeConfig(first_rank)) {}

void SimulatedNode::Submit(Submission& submission, bool follows_wait, TimePoint now) {
  if (ended()) return ledger_.OnJobFailed(submission, std::string(agreed_.cause().message()));
  Tensor& tensor = tensors_[submission.name];
  if (tensor.queue.empty()) {
    tensor.queue.resize(static_cast<std::size_t>(rank_count_));
    tensor.handle = scheduler_.Intern(submission.name);
  }
  bool flag = false;
  if (scenario_.wait_knowledge == WaitKnowledge::kFollowsWait) flag = follows_wait;
  if (scenario_.wait_knowledge == WaitKnowledge::kPipelineEmpty) flag = in_flight_ == 0;
  follows_wait_[tensor.handle] |= flag;
  ++in_flight_;
  tensor.queue[LocalIndex(submission)].push_back(&submission);
  ReportIfReady(tensor, now);
}

void SimulatedNode::ReportIfReady(Tensor& tensor, TimePoint now) {
  if (tensor.outstanding) return;
  std::vector<RankMeta> reports;
  for (const std::deque<Submission*>& queue : tensor.queue) {
    if (queue.empty()) return;
    reports.push_back({Rank(queue.front()->rank), queue.front()->meta});
  }
  tensor.outstanding = true;
  const bool follows_wait = std::exchange(follows_wait_[tensor.handle], false);
  const bool agree = std::all_of(reports.begin(), reports.end(), [&](const RankMeta& report) {
    return report.meta == reports.front().meta;
  });
  if (agree) {
    scheduler_.OnLocallyReady(tensor.handle, reports.front().meta, follows_wait, now);
  } else {
    scheduler_.OnLocalMismatch(tensor.handle, std::move(reports), now);
  }
}

void SimulatedNode::Receive(const CoordinatorMessage& message, TimePoint now) {
  if (ended()) return;
  const absl::Status status = scheduler_.OnMessage(message, now);
  if (!status.ok()) {
    ledger_.Report("node " + std::to_string(index_) + ": " + std::string(status.message()));
  }
}

void SimulatedNode::Complete(OperationId operation, TimePoint now) {
  if (!goes_on()) return;
  if (running_.count(operation) == 0 || !data_plane_.IsRunningAt(index_, operation)) {
    return ledger_.Report("node " + std::to_string(index_) + ": completed what is not running");
  }
  const std::vector<std::int64_t> sums = data_plane_.Complete(index_, operation);
  const TensorList tensors = running_.extract(operation).mapped();
  scheduler_.OnFinished(operation, now);
  for (std::size_t i = 0; i < tensors->size(); ++i) {
    Tensor& tensor = tensors_.at(scheduler_.NameOf((*tensors)[i]));
    EndOccurrence(tensor, [&](Submission& s) { ledger_.OnSucceeded(s, sums[i]); });
  }
  for (TensorHandle handle : *tensors) ReportIfReady(tensors_.at(scheduler_.NameOf(handle)), now);
  wiring_.wake_ranks();
}

void SimulatedNode::EndOccurrence(Tensor& tensor, const std::function<void(Submission&)>& end) {
  tensor.outstanding = false;
  tensor.running = false;
  for (std::deque<Submission*>& queue : tensor.queue) {
    end(*queue.front());
    queue.pop_front();
    --in_flight_;
  }
}

void SimulatedNode::RunLoop(TimePoint now) {
  if (!goes_on()) return;
  scheduler_.OnTick(now, *this);
  // A failed tensor's next occurrence may be ready at once, which makes new actions.
  for (;;) {
    std::vector<Action> actions;
    scheduler_.TakeActions(actions);
    if (actions.empty()) return;
    for (const Action& action : actions) Apply(action);
    CompleteUnsent(actions, now);
    for (const Action& action : actions) {
      if (const auto* failed = std::get_if<TensorFailed>(&action)) {
        ReportIfReady(tensors_.at(scheduler_.NameOf(failed->tensor)), now);
        wiring_.wake_ranks();
      }
    }
  }
}

void SimulatedNode::CompleteUnsent(const std::vector<Action>& actions, TimePoint now) {
  for (const Action& action : actions) {
    const auto* start = std::get_if<StartOperation>(&action);
    if (start == nullptr || data_plane_.IsSent(start->operation)) continue;
    ++unsent_operations_;
    Complete(start->operation, now);
  }
}

void SimulatedNode::Apply(const Action& action) {
  if (const auto* send = std::get_if<SendToCoordinator>(&action)) {
    wiring_.send(send->message);
  } else if (const auto* start = std::get_if<StartOperation>(&action)) {
    Start(*start);
  } else if (const auto* cancel = std::get_if<CancelOperation>(&action)) {
    data_plane_.Cancel(index_, cancel->operation);
    const TensorList tensors = running_.extract(cancel->operation).mapped();
    for (TensorHandle handle : *tensors) tensors_.at(scheduler_.NameOf(handle)).running = false;
  } else if (const auto* failed = std::get_if<TensorFailed>(&action)) {
    const std::string error(failed->status.message());
    EndOccurrence(tensors_.at(scheduler_.NameOf(failed->tensor)),
                  [&](Submission& s) { ledger_.OnFailed(s, error); });
  }
}

void SimulatedNode::Start(const StartOperation& start) {
  std::vector<Contribution> contributions;
  for (TensorHandle handle : *start.tensors) {
    const std::string& name = scheduler_.NameOf(handle);
    Tensor& tensor = tensors_.at(name);
    if (std::exchange(tensor.running, true)) {
      ledger_.Report("node " + std::to_string(index_) + ": " + name + " is in two operations");
    }
    Contribution contribution{name, tensor.queue.front().front()->meta, 0};
    for (const std::deque<Submission*>& queue : tensor.queue) {
      contribution.sum += queue.front()->value;
    }
    contributions.push_back(std::move(contribution));
  }
  running_.emplace(start.operation, start.tensors);
  data_plane_.Start(index_, start.operation, contributions);
}

bool SimulatedNode::Decide(const absl::Status& cause) {
  if (!agreed_.Decide(cause)) return false;
  for (auto& [name, tensor] : tensors_) {
    for (std::deque<Submission*>& queue : tensor.queue) {
      for (Submission* submission : queue) {
        ledger_.OnJobFailed(*submission, std::string(cause.message()));
      }
      queue.clear();
    }
  }
  in_flight_ = 0;
  wiring_.wake_ranks();
  return true;
}

bool SimulatedNode::AbsentRanksAreBlocked(TensorHandle missing) const {
  if (!scenario_.blocked_ranks_visible) return false;
  const auto found = tensors_.find(scheduler_.NameOf(missing));
  const auto lacks = [&](int rank) {
    if (found == tensors_.end()) return true;
    return found->second.queue[static_cast<std::size_t>(rank - first_rank_.value())].empty();
  };
  return std::all_of(threads_.begin(), threads_.end(), [&](const RankThread* thread) {
    if (!lacks(thread->rank())) return true;
    // A rank counts as blocked as soon as one of its threads is, as a daemon would see it.
    return std::any_of(threads_.begin(), threads_.end(), [&](const RankThread* other) {
      return other->rank() == thread->rank() && other->blocked();
    });
  });
}

std::string SimulatedNode::DescribePending() const {
  static constexpr const char* kStates[] = {"idle", "announced", "held", "running"};
  std::string text;
  for (const PendingTensor& pending : scheduler_.Pending(TimePoint::max())) {
    text += "  node " + std::to_string(index_) + ": " + scheduler_.NameOf(pending.tensor) + " is " +
            kStates[static_cast<int>(pending.state)] + " on channel " +
            std::to_string(pending.channel) + ", " + std::to_string(pending.missing.size()) +
            " missing\n";
  }
  return text;
}

}  // namespace ringd::simulation
