#include "tests/simulation/joining.h"

#include <cstdint>
#include <string>

#include "daemon/config/config.h"
#include "daemon/logging/log_setup.h"

namespace ringd::simulation {
namespace {

int PidOf(int rank) { return 1000 + rank; }

}  // namespace

LinkId LinkOf(int node) { return LinkId(static_cast<std::uint64_t>(node) + 1); }
int NodeOf(LinkId link) { return static_cast<int>(link.value()) - 1; }

MemberNode DescribeNode(int node, int first, int count) {
  MemberNode member;
  member.name = "node-" + std::to_string(node);
  for (int i = 0; i < count; ++i) {
    member.ranks.push_back({Rank(first + i), LocalRank(i), PidOf(first + i), ""});
  }
  return member;
}

bool JoinAll(JobCoordinator& coordinator, const std::vector<MemberNode>& nodes, TimePoint now) {
  int size = 0;
  for (const MemberNode& node : nodes) size += static_cast<int>(node.ranks.size());
  for (int index = 0; index < static_cast<int>(nodes.size()); ++index) {
    const MemberNode& node = nodes[static_cast<std::size_t>(index)];
    v1::Hello hello;
    hello.set_node_name(node.name);
    hello.set_size(size);
    hello.set_local_size(static_cast<int>(node.ranks.size()));
    coordinator.AddNode(LinkOf(index), hello, now);
    for (const MemberRank& rank : node.ranks) {
      v1::NodeMessage message;
      v1::RankInfo& info = *message.mutable_rank_joined()->mutable_rank();
      info.set_rank(rank.rank.value());
      info.set_local_rank(rank.local_rank.value());
      info.set_pid(rank.pid);
      coordinator.OnMessage(LinkOf(index), message, now);
    }
  }
  return !coordinator.Open();
}

void QuietLog() {
  static const bool is_quiet = [] {
    Config config;
    config.log_level = "warning";
    return StartLogging(config).ok();
  }();
  static_cast<void>(is_quiet);
}

}  // namespace ringd::simulation
