#include "tests/simulation/losses.h"

#include <numeric>
#include <utility>

#include "daemon/config/config.h"
#include "daemon/logging/log_setup.h"

namespace ringd::simulation {
namespace {

using std::chrono::nanoseconds;

constexpr nanoseconds kTickInterval = std::chrono::milliseconds(50);  // the engine's

LinkId LinkOf(int node) { return LinkId(static_cast<std::uint64_t>(node) + 1); }
int NodeOf(LinkId link) { return static_cast<int>(link.value()) - 1; }
int PidOf(int rank) { return 1000 + rank; }

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

// Of thousands of jobs that end early nobody wants to read the daemon's words.
void QuietLog() {
  static const bool is_quiet = [] {
    Config config;
    config.log_level = "warning";
    return StartLogging(config).ok();
  }();
  static_cast<void>(is_quiet);
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
  const TimePoint now = world_.events.now();
  const int node_count = static_cast<int>(world_.nodes.size());
  for (int index = 0; index < node_count; ++index) {
    const MemberNode node = Describe(index);
    v1::Hello hello;
    hello.set_node_name(node.name);
    hello.set_size(RankCount(world_.scenario));
    hello.set_local_size(static_cast<int>(node.ranks.size()));
    coordinator_.AddNode(LinkOf(index), hello, now);
    for (const MemberRank& rank : node.ranks) {
      v1::NodeMessage message;
      v1::RankInfo& info = *message.mutable_rank_joined()->mutable_rank();
      info.set_rank(rank.rank.value());
      info.set_local_rank(rank.local_rank.value());
      info.set_pid(rank.pid);
      coordinator_.OnMessage(LinkOf(index), message, now);
    }
  }
  if (coordinator_.Open()) world_.ledger.Report("the job did not start");
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
  MemberNode member;
  member.name = "node-" + std::to_string(node);
  const SimulatedNode& simulated = *world_.nodes[static_cast<std::size_t>(node)];
  for (int i = 0; i < simulated.rank_count(); ++i) {
    const int rank = simulated.first_rank().value() + i;
    member.ranks.push_back({Rank(rank), LocalRank(i), PidOf(rank), ""});
  }
  return member;
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
  const std::string cause =
      DescribeRank(Rank(rank), PidOf(rank), node.name) + ", was killed by signal 9 (Killed)";
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
