#include "tests/simulation/losses.h"

#include <numeric>
#include <utility>

#include "tests/simulation/joining.h"

namespace ringd::simulation {
namespace {

using std::chrono::nanoseconds;

constexpr nanoseconds kTickInterval = std::chrono::milliseconds(50);  // the engine's

int RankCount(const Scenario& scenario) {
  return std::accumulate(scenario.ranks_on_node.begin(), scenario.ranks_on_node.end(), 0);
}

JobCoordinator::Options MakeOptions(const Scenario& scenario) {
  JobCoordinator::Options options;
  options.job_id = "job";
  options.size = RankCount(scenario);
  options.start_timeout = std::chrono::minutes(1);
  options.fusion_threshold_bytes = scenario.fusion_threshold_bytes;
  return options;
}

}  // namespace

Losses::Losses(World world)
    : world_(std::move(world)),
      coordinator_(MakeOptions(world_.scenario), this, world_.events.now()),
      rank_lost_(static_cast<std::size_t>(RankCount(world_.scenario)), false),
      proposals_(world_.scenario.ranks_on_node.size()) {
  QuietLog();
}

void Losses::Begin() {
  std::vector<MemberNode> nodes;
  for (int node = 0; node < static_cast<int>(world_.nodes.size()); ++node) {
    nodes.push_back(Describe(node));
  }
  if (!JoinAll(coordinator_, nodes, world_.events.now())) {
    world_.ledger.Report("the job did not start");
  }
  for (const Loss& loss : world_.scenario.losses) {
    world_.events.After(loss.at, [this, &loss] {
      ++count_;
      if (loss.rank.has_value()) {
        LoseRank(loss);
      } else {
        LoseNode(loss);
      }
      world_.changed();
    });
  }
}

MemberNode Losses::Describe(int node) const {
  const SimulatedNode& simulated = *world_.nodes[static_cast<std::size_t>(node)];
  return DescribeNode(node, simulated.first_rank().value(), simulated.rank_count());
}

void Losses::LoseNode(const Loss& loss) {
  const std::string cause = DescribeLostNode(Describe(loss.node));
  world_.story.Tell("lost: node-" + std::to_string(loss.node) +
                    (loss.with_host ? " and its host" : ""));
  world_.ledger.Allow(cause);
  if (loss.with_host) {
    world_.network.LoseHost(loss.node);
    if (loss.node == 0 && told_) world_.ledger.AllowWhereNoneWasHeard(cause);
  } else {
    world_.network.Lose(loss.node);
  }
  const auto noticed = [&] { return world_.network.Upto(loss.noticed_within); };
  const int node_count = static_cast<int>(world_.nodes.size());
  if (loss.node != 0) {
    world_.network.ToCoordinator(
        loss.node,
        [this, link = LinkOf(loss.node)] {
          coordinator_.OnLinkLost(link, absl::UnavailableError("reset"));
        },
        noticed());
  }
  for (int node = 0; node < node_count; ++node) {
    if (world_.network.IsLost(node)) continue;
    if (loss.node == 0) {
      world_.network.ToNode(
          node, [this, node, cause] { Decide(node, cause); }, noticed());
    }
    // A neighbour's backend sees a connection break, perhaps before anybody sees the stream end.
    const bool is_neighbour = noticed() < loss.noticed_within / 2;
    if (!is_neighbour) continue;
    world_.network.AtNode(node, noticed(), [this, node, cause] { Propose(node, cause); });
  }
}

void Losses::LoseRank(const Loss& loss) {
  const MemberNode node = Describe(loss.node);
  const int rank = *loss.rank;
  const std::size_t place = static_cast<std::size_t>(rank - node.ranks.front().rank.value());
  const int pid = node.ranks[place].pid;
  const std::string cause =
      DescribeRank(Rank(rank), pid, node.name) + ", was killed by signal 9 (Killed)";
  world_.story.Tell("lost: rank " + std::to_string(rank) + " on " + node.name);
  world_.ledger.Allow(cause);
  rank_lost_[static_cast<std::size_t>(rank)] = true;
  const nanoseconds delay = world_.network.Upto(loss.noticed_within);
  world_.network.AtNode(loss.node, delay,
                        [this, index = loss.node, cause] { Propose(index, cause); });
}

void Losses::Propose(int node, const std::string& loss) {
  SimulatedNode& simulated = *world_.nodes[static_cast<std::size_t>(node)];
  const std::string cause =
      loss + " while " + std::to_string(simulated.in_flight()) + " submissions were in flight";
  if (!simulated.Propose(absl::AbortedError(cause))) return;
  world_.story.Tell("node-" + std::to_string(node) + " to the coordinator: " + cause);
  proposals_[static_cast<std::size_t>(node)] = loss;
  v1::NodeMessage message;
  message.mutable_failure()->set_code(static_cast<int>(absl::StatusCode::kAborted));
  message.mutable_failure()->set_text(cause);
  world_.network.ToCoordinator(node, [this, node, message] {
    coordinator_.OnMessage(LinkOf(node), message, world_.events.now());
  });
  Tick(node);
}

void Losses::Tick(int node) {
  const auto unanswered =
      world_.nodes[static_cast<std::size_t>(node)]->Unanswered(world_.events.now());
  if (unanswered.has_value()) Decide(node, std::string(unanswered->message()));
  if (!world_.nodes[static_cast<std::size_t>(node)]->pending()) return;
  world_.network.AtNode(node, kTickInterval, [this, node] { Tick(node); });
}

void Losses::Decide(int node, const std::string& cause) {
  if (!world_.nodes[static_cast<std::size_t>(node)]->Decide(absl::AbortedError(cause))) return;
  world_.story.Tell("node-" + std::to_string(node) + " ends the job: " + cause);
  if (!cause.starts_with(proposals_[static_cast<std::size_t>(node)])) ++overruled_;
  world_.changed();
}

void Losses::SendToNode(LinkId link, v1::CoordinatorMessage message) {
  if (!message.has_failure()) return;  // Who takes part is known to all from the start.
  if (!told_) world_.story.Tell("the coordinator tells all: " + message.failure().text());
  told_ = true;
  const int node = NodeOf(link);
  if (!told_nodes_.insert(node).second) {
    world_.ledger.Report("node-" + std::to_string(node) + " was told twice why the job ends");
  }
  world_.network.ToNode(node,
                        [this, node, cause = message.failure().text()] { Decide(node, cause); });
}

void Losses::CloseNode(LinkId link, const absl::Status& reason) {
  world_.ledger.Report("node-" + std::to_string(NodeOf(link)) +
                       " was turned away: " + std::string(reason.message()));
}

bool Losses::AllHaveHeard() const {
  for (int node = 0; count_ > 0 && node < static_cast<int>(world_.nodes.size()); ++node) {
    const bool ended = world_.nodes[static_cast<std::size_t>(node)]->ended();
    if (!world_.network.IsLost(node) && !ended) return false;
  }
  return true;
}

}  // namespace ringd::simulation
