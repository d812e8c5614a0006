// Ranks of a run that have ended well while others go on.
#ifndef RINGD_CLIENT_CLI_PROCESSES_EARLY_ENDS_H_
#define RINGD_CLIENT_CLI_PROCESSES_EARLY_ENDS_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "client/cli/processes/supervisor.h"
#include "proto/base/clock.h"

namespace ringd::cli {

// At a run's end all ranks end. One that has ended well long before may be awaited by the others,
// unless it has left something behind that is the rank. That is told of the first kMost, and again
// after twice the time, since the others may take theirs to join.
//
// Thread safety: one thread.
class EarlyEnds {
 public:
  static constexpr std::size_t kMost = 8;
  static constexpr std::chrono::milliseconds kPatience{5000};
  static constexpr std::chrono::milliseconds kLongestPatience{80'000};

  void Note(const RankEnd& end, Clock::time_point now);
  // When Tell has something to do; nothing: never.
  std::optional<Clock::time_point> next() const;
  // Calls `tell` for those whose time has come. Each look reads all of /proc.
  void Tell(Clock::time_point now, const std::function<void(const RankEnd&)>& tell);

 private:
  struct Entry {
    RankEnd end;
    Clock::time_point look_at;
    std::chrono::milliseconds patience = kPatience;
  };

  std::vector<Entry> entries_;
};

}  // namespace ringd::cli

#endif  // RINGD_CLIENT_CLI_PROCESSES_EARLY_ENDS_H_
