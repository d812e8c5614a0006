#include "tests/simulation/simulated_node.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include "daemon/schedule/node/node_scheduler.h"
#include "daemon/schedule/node/ordered_scheduler.h"

namespace ringd::simulation {
namespace {

std::unique_ptr<OperationScheduler> MakeScheduler(bool by_order, Rank first_rank) {
  if (by_order) return std::make_unique<OrderedScheduler>(first_rank);
  NodeSchedulerConfig config;
  config.first_rank = first_rank;
  return std::make_unique<NodeScheduler>(config);
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
      scheduler_(MakeScheduler(scenario.by_order, first_rank)) {}

void SimulatedNode::Submit(Submission& submission, bool follows_wait, TimePoint now) {
  if (ended()) return ledger_.OnJobFailed(submission, std::string(agreed_.cause().message()));
  const TensorHandle handle = scheduler_->Intern(submission.name);
  Tensor& tensor = tensors_[handle];
  tensor.queue.resize(static_cast<std::size_t>(rank_count_));
  bool flag = false;
  if (scenario_.wait_knowledge == WaitKnowledge::kFollowsWait) flag = follows_wait;
  if (scenario_.wait_knowledge == WaitKnowledge::kPipelineEmpty) flag = in_flight_ == 0;
  follows_wait_[handle] |= flag;
  ++in_flight_;
  tensor.queue[LocalIndex(submission)].push_back(&submission);
  ReportIfReady(handle, now);
}

void SimulatedNode::ReportIfReady(TensorHandle handle, TimePoint now) {
  Tensor& tensor = tensors_.at(handle);
  if (tensor.outstanding) return;
  std::vector<RankMeta> reports;
  for (const std::deque<Submission*>& queue : tensor.queue) {
    if (queue.empty()) return;
    reports.push_back({Rank(queue.front()->rank), queue.front()->meta});
  }
  tensor.outstanding = true;
  const bool follows_wait = std::exchange(follows_wait_[handle], false);
  const bool agree = std::all_of(reports.begin(), reports.end(), [&](const RankMeta& report) {
    return report.meta == reports.front().meta;
  });
  // Hints of the ranks', right or wrong.
  if (scenario_.streams_wait && ++ready_count_ % 4 == 0) scheduler_->OnStreamWait();
  if (agree) {
    scheduler_->OnLocallyReady(handle, reports.front().meta, follows_wait, now);
  } else {
    scheduler_->OnLocalMismatch(handle, std::move(reports), now);
  }
}

void SimulatedNode::Receive(const CoordinatorMessage& message, TimePoint now) {
  if (ended()) return;
  const absl::Status status = scheduler_->OnMessage(message, now);
  if (!status.ok()) {
    ledger_.Report("node " + std::to_string(index_) + ": " + std::string(status.message()));
  }
}

void SimulatedNode::Inquire(const std::string& name) {
  if (ended()) return;
  const absl::Status status = scheduler_->OnInquiry(name);
  if (!status.ok()) {
    ledger_.Report("node " + std::to_string(index_) + ": " + std::string(status.message()));
  }
}

void SimulatedNode::OnDifference(OperationId operation) {
  // It may have ended meanwhile.
  if (!goes_on() || !data_plane_.IsRunningAt(index_, operation)) return;
  data_plane_.GiveUp(index_, operation);
  const TensorList tensors = running_.extract(operation).mapped();
  for (TensorHandle handle : *tensors) tensors_.at(handle).running = false;
  if (!scheduler_->OnDisagreement(operation)) {
    ledger_.Report("node " + std::to_string(index_) + ": what differs is no news by order");
  }
}

void SimulatedNode::Complete(OperationId operation, TimePoint now) {
  if (!goes_on()) return;
  if (running_.count(operation) == 0 || !data_plane_.IsRunningAt(index_, operation)) {
    return ledger_.Report("node " + std::to_string(index_) + ": completed what is not running");
  }
  const std::vector<std::int64_t> sums = data_plane_.Complete(index_, operation);
  const TensorList tensors = running_.extract(operation).mapped();
  scheduler_->OnFinished(operation, now);
  for (std::size_t i = 0; i < tensors->size(); ++i) {
    EndOccurrence(tensors_.at((*tensors)[i]),
                  [&](Submission& s) { ledger_.OnSucceeded(s, sums[i]); });
  }
  for (TensorHandle handle : *tensors) ReportIfReady(handle, now);
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
  scheduler_->OnTick(now, *this);
  // A failed tensor's next occurrence may be ready at once, which makes new actions.
  for (;;) {
    std::vector<Action> actions;
    scheduler_->TakeActions(actions);
    if (actions.empty()) return;
    for (const Action& action : actions) Apply(action);
    CompleteUnsent(actions, now);
    for (const Action& action : actions) {
      if (const auto* failed = std::get_if<TensorFailed>(&action)) {
        ReportIfReady(failed->tensor, now);
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
    // By order it may have been given up since the scheduler said so.
    if (scenario_.by_order && !running_.contains(cancel->operation)) return;
    data_plane_.Cancel(index_, cancel->operation);
    const TensorList tensors = running_.extract(cancel->operation).mapped();
    for (TensorHandle handle : *tensors) tensors_.at(handle).running = false;
  } else if (const auto* failed = std::get_if<TensorFailed>(&action)) {
    const std::string error(failed->status.message());
    EndOccurrence(tensors_.at(failed->tensor), [&](Submission& s) { ledger_.OnFailed(s, error); });
  }
}

void SimulatedNode::CheckOrder(OperationId operation) {
  const std::uint64_t number =
      OrderedNumberOf(OrderedScheduler::PlaceOf(operation).value(), operation.sequence);
  if (number < next_number_) {
    ledger_.Report("node " + std::to_string(index_) + ": starts operation " +
                   std::to_string(number) + " after a later one");
  }
  next_number_ = number + 1;
}

void SimulatedNode::Start(const StartOperation& start) {
  if (scenario_.by_order) CheckOrder(start.operation);
  std::vector<Contribution> contributions;
  for (TensorHandle handle : *start.tensors) {
    const std::string name = scheduler_->NameOf(handle);
    Tensor& tensor = tensors_.at(handle);
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
  if (start.operation.channel != 0 && NeedsLaunch(contributions.front().meta)) {
    ++launched_operations_;
  }
  data_plane_.Start(index_, start.operation, contributions);
}

bool SimulatedNode::Decide(const absl::Status& cause) {
  if (!agreed_.Decide(cause)) return false;
  for (auto& [handle, tensor] : tensors_) {
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
  const auto found = tensors_.find(missing);
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
  for (const auto& [handle, tensor] : tensors_) {
    if (!tensor.outstanding) continue;
    text += "  node " + std::to_string(index_) + ": " + scheduler_->NameOf(handle) + " is " +
            kStates[static_cast<int>(scheduler_->StateOf(handle))] + "\n";
  }
  return text;
}

}  // namespace ringd::simulation
