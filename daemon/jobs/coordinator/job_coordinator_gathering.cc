// JobCoordinator while ranks join: who is there, who is missing, and what they hear of it.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/jobs/coordinator/job_coordinator.h"

namespace ringd {
namespace {

// Who is turned away may come again and again.
constexpr std::size_t kTurnedAwayNamed = 3;
constexpr std::size_t kNodesNamed = 16;

// Who is missing is told so often at most, and so many of them.
constexpr std::chrono::milliseconds kBetweenGatherings{500};
constexpr int kMissingTold = 64;

}  // namespace

std::string JobCoordinator::DescribePresent() const {
  std::vector<std::string> parts;
  std::size_t left_out = 0;
  for (const auto& [link, node] : nodes_) {
    if (node.ranks.empty()) continue;
    if (parts.size() < kNodesNamed) {
      parts.push_back(DescribeNode(node));
    } else {
      ++left_out;
    }
  }
  if (parts.empty()) return "nobody";
  return absl::StrCat(absl::StrJoin(parts, ", "),
                      left_out > 0 ? absl::StrCat(" and ", left_out, " more nodes") : "");
}

std::vector<int> JobCoordinator::MissingRanks() const {
  std::vector<bool> present(static_cast<std::size_t>(options_.size), false);
  for (const auto& [link, node] : nodes_) {
    for (const MemberRank& member : node.ranks) {
      present[static_cast<std::size_t>(member.rank.value())] = true;
    }
  }
  std::vector<int> missing;
  for (int rank = 0; rank < options_.size; ++rank) {
    if (!present[static_cast<std::size_t>(rank)]) missing.push_back(rank);
  }
  return missing;
}

void JobCoordinator::NoteTurnedAway(const std::string& why) {
  const bool known = std::find(turned_away_.begin(), turned_away_.end(), why) != turned_away_.end();
  if (!known && turned_away_.size() < kTurnedAwayNamed) turned_away_.push_back(why);
}

void JobCoordinator::TellWhoIsMissing(Clock::time_point now) {
  next_gathering_ = now + kBetweenGatherings;
  gathering_untold_ = false;
  v1::CoordinatorMessage message;
  v1::Gathering& gathering = *message.mutable_gathering();
  const std::vector<int> missing = MissingRanks();
  for (const int rank : missing) {
    if (gathering.missing_ranks_size() == kMissingTold) break;
    gathering.add_missing_ranks(rank);
  }
  gathering.set_missing_left_out(static_cast<std::uint32_t>(missing.size()) -
                                 static_cast<std::uint32_t>(gathering.missing_ranks_size()));
  Broadcast(message);
}

void JobCoordinator::FailToStart(std::chrono::nanoseconds timeout) {
  Fail(absl::DeadlineExceededError(absl::StrCat(
      "job '", options_.job_id, "' could not start within ",
      std::chrono::duration<double>(timeout).count(), " s: ", NameRanks(MissingRanks()),
      " did not join; present: ", DescribePresent(),
      turned_away_.empty() ? "" : "; turned away: ", absl::StrJoin(turned_away_, "; "))));
}

}  // namespace ringd
