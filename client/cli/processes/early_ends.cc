#include "client/cli/processes/early_ends.h"

#include <algorithm>
#include <csignal>

#include "client/cli/processes/process_groups.h"

namespace ringd::cli {

void EarlyEnds::Note(const RankEnd& end, Clock::time_point now) {
  if (entries_.size() < kMost) entries_.push_back({end, now + kPatience});
}

std::optional<Clock::time_point> EarlyEnds::next() const {
  const auto first = std::ranges::min_element(entries_, {}, &Entry::look_at);
  if (first == entries_.end()) return std::nullopt;
  return first->look_at;
}

void EarlyEnds::Tell(Clock::time_point now, const std::function<void(const RankEnd&)>& tell) {
  std::erase_if(entries_, [&](Entry& entry) {
    if (now < entry.look_at) return false;
    entry.patience *= 2;
    entry.look_at = now + entry.patience;
    if (!AnyAlive({entry.end.pid}, SIGTERM)) tell(entry.end);
    return entry.patience > kLongestPatience;
  });
}

}  // namespace ringd::cli
