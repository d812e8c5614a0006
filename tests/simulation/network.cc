#include "tests/simulation/network.h"

#include <algorithm>
#include <utility>

namespace ringd::simulation {

using std::chrono::nanoseconds;

Network::Network(const Scenario& scenario, EventQueue& events, Random random)
    : scenario_(scenario),
      events_(events),
      random_(random),
      to_coordinator_(scenario.ranks_on_node.size()),
      to_node_(scenario.ranks_on_node.size()),
      lost_(scenario.ranks_on_node.size(), false) {}

void Network::AtNode(int node, nanoseconds delay, Action action) {
  events_.After(delay, [this, node, action = std::move(action)]() mutable {
    if (IsLost(node)) return;
    const std::optional<TimePoint> resume = ResumeTime(node);
    if (resume) {
      AtNode(node, *resume - events_.now(), std::move(action));
    } else {
      action();
    }
  });
}

void Network::ToCoordinator(int node, Action action, nanoseconds least) {
  Deliver(node, 0, to_coordinator_[static_cast<std::size_t>(node)], std::move(action), least);
}

void Network::ToNode(int node, Action action, nanoseconds least) {
  Deliver(0, node, to_node_[static_cast<std::size_t>(node)], std::move(action), least);
}

void Network::LoseHost(int node) {
  Lose(node);
  lost_a_host_ = true;
  const auto cut = [this](Stream& stream) {
    stream.cut_off = events_.now() + Upto(scenario_.message_delay);
  };
  cut(to_coordinator_[static_cast<std::size_t>(node)]);
  if (node == 0) std::for_each(to_node_.begin(), to_node_.end(), cut);
}

void Network::Deliver(int sender, int receiver, Stream& stream, Action action, nanoseconds least) {
  ++messages_;
  stream.last =
      std::max(stream.last, events_.now() + std::max(least, Upto(scenario_.message_delay)));
  // The end of a lost node's stream is "sent" on it, too, and always arrives.
  const bool is_sent_alive = !IsLost(sender);
  AtNode(receiver, stream.last - events_.now(),
         [&stream, is_sent_alive, due = stream.last, action = std::move(action)] {
           if (!is_sent_alive || due <= stream.cut_off) action();
         });
}

// Of pauses that overlap the last end counts, for whatever falls into any of them: so its order
// stays.
std::optional<TimePoint> Network::ResumeTime(int node) const {
  std::optional<TimePoint> resume;
  for (bool moved = true; moved;) {
    moved = false;
    const TimePoint time = resume.value_or(events_.now());
    for (const Pause& pause : scenario_.pauses) {
      const TimePoint begin = TimePoint() + pause.at;
      if (pause.node != node || time < begin || time >= begin + pause.duration) continue;
      resume = begin + pause.duration;
      moved = true;
      break;
    }
  }
  return resume;
}

nanoseconds Network::Upto(nanoseconds limit) { return random_.Duration(nanoseconds(0), limit); }

}  // namespace ringd::simulation
