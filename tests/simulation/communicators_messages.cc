// What the simulated nodes and the real coordinator say to each other of communicators.
#include <algorithm>
#include <utility>

#include "daemon/peers/schedule_conversion.h"
#include "tests/simulation/communicators.h"
#include "tests/simulation/joining.h"

namespace ringd::simulation {
namespace {

constexpr std::chrono::nanoseconds kTickInterval = std::chrono::milliseconds(50);  // the engine's

}  // namespace

void CommunicatorsWorld::SendToCoordinator(int node, v1::NodeMessage message) {
  network_.ToCoordinator(node, [this, node, message = std::move(message)] {
    coordinator_.OnMessage(LinkOf(node), message, events_.now());
    WakeCoordinator();
  });
}

void CommunicatorsWorld::WakeCoordinator() {
  if (std::exchange(coordinator_awake_, true)) return;
  network_.AtNode(0, network_.Upto(scenario_.job.loop_delay), [this] {
    coordinator_awake_ = false;
    coordinator_.Advance(events_.now());
  });
}

void CommunicatorsWorld::TickCoordinator() {
  coordinator_.Advance(events_.now());
  network_.AtNode(0, kTickInterval, [this] { TickCoordinator(); });
}

void CommunicatorsWorld::SendToNode(LinkId link, v1::CoordinatorMessage message) {
  const int node = NodeOf(link);
  network_.ToNode(node, [this, node, message = std::move(message)] { Receive(node, message); });
}

void CommunicatorsWorld::CloseNode(LinkId link, const absl::Status& reason) {
  Report("node-" + std::to_string(NodeOf(link)) +
         " was turned away: " + std::string(reason.message()));
}

void CommunicatorsWorld::Receive(int node, const v1::CoordinatorMessage& message) {
  if (message.has_failure()) return Fail(node, message.failure().text());
  if (failed_[static_cast<std::size_t>(node)]) return;
  if (message.has_communicator_made()) {
    return OnMade(node, message.communicator(), message.communicator_made());
  }
  if (message.has_communicator_refused()) return OnRefused(node, message.communicator_refused());
  if (message.communicator() == 0) return;  // that of all ranks idles here
  const auto one =
      std::find_if(communicators_.begin(), communicators_.end(), [&](const One& known) {
        const auto part = known.parts.find(node);
        return part != known.parts.end() && part->second.number == message.communicator();
      });
  if (one == communicators_.end() || one->parts.at(node).ended) {
    return Report("node-" + std::to_string(node) + " hears of communicator " +
                  std::to_string(message.communicator()) +
                  (one == communicators_.end() ? " before it is made" : " after it has ended"));
  }
  if (message.has_communicator_ended()) return OnEnded(*one, node);
  if (message.has_order_inquiry()) {
    for (const std::string& operation : message.order_inquiry().operations()) {
      one->parts.at(node).simulated->Inquire(operation);
    }
    return WakeLoop(*one, node);
  }
  if (!IsSchedulingMessage(message)) return;
  const absl::StatusOr<CoordinatorMessage> scheduling = FromProto(message);
  if (!scheduling.ok()) return Report(std::string(scheduling.status().message()));
  if (one->parts.at(node).simulated == nullptr) return Report("one node needs no schedule");
  one->parts.at(node).simulated->Receive(*scheduling, events_.now());
  WakeLoop(*one, node);
}

void CommunicatorsWorld::OnMade(int node, std::uint32_t number, const v1::CommunicatorMade& made) {
  const auto one =
      std::find_if(communicators_.begin(), communicators_.end(), [&](const One& known) {
        return known.plan->name == made.name() &&
               std::equal(known.plan->ranks.begin(), known.plan->ranks.end(), made.ranks().begin(),
                          made.ranks().end());
      });
  const bool known = one != communicators_.end() && one->parts.contains(node);
  if (!known || one->parts.at(node).number != 0 || (one->number != 0 && one->number != number)) {
    return Report("communicator " + std::to_string(number) + " is made on node-" +
                  std::to_string(node) + ", which makes no sense there");
  }
  if (made.by_order() != one->plan->use.by_order) {
    Report(made.name() + " matches otherwise than it was asked to");
  }
  for (const Thread& thread : one->threads) {
    if (!thread.asked) Report(made.name() + " is made, and not all its ranks have asked");
  }
  for (const One& other : communicators_) {
    if (&other != &*one && other.number == number) Report(made.name() + " has another's number");
  }
  one->number = one->parts.at(node).number = number;
  if (one->nodes.size() > 1) MakeNode(*one, node);
  for (Thread& thread : one->threads) {
    if (thread.node == node) thread.made = true;
  }
  AdvanceThreads(*one, node);
}

void CommunicatorsWorld::OnRefused(int node, const v1::CommunicatorRefused& refused) {
  for (One& one : communicators_) {
    if (one.plan->name != refused.name()) continue;
    if (!one.plan->absent_rank.has_value()) Report(refused.text());
    for (Thread& thread : one.threads) {
      const bool asked = std::find(refused.asked().begin(), refused.asked().end(), thread.rank) !=
                         refused.asked().end();
      if (!asked || thread.node != node) continue;
      if (std::exchange(thread.over, true)) Report(one.plan->name + " is refused twice");
      ++refused_;
    }
  }
}

void CommunicatorsWorld::OnEnded(One& one, int node) {
  for (const Thread& thread : one.threads) {
    if (thread.over) continue;
    Report(one.plan->name + " has ended, and rank " + std::to_string(thread.rank) +
           " has not destroyed it");
  }
  one.parts.at(node).ended = true;
}

}  // namespace ringd::simulation
