// Which all-reduces some nodes run to find out how to run small ones, and what they learn.
#ifndef RINGD_DAEMON_SCHEDULE_ROUTES_ALL_REDUCE_TRIAL_H_
#define RINGD_DAEMON_SCHEDULE_ROUTES_ALL_REDUCE_TRIAL_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <vector>

#include "daemon/schedule/protocol/schedule_time.h"
#include "daemon/schedule/routes/all_reduce_times.h"

namespace ringd {

// One node's part. For each of kTriedBytes, rounds of a few all-reduces through one node and a few
// by recursive doubling, one after another; the median over the rounds speaks. In each such group
// the first all-reduce is not counted: the nodes begin it at different times, and perhaps connect.
// The same node is always in the middle: so what its line may take at once, with a token bucket, is
// soon used up.
//
// How many rounds there are depends on how fast they are, and all nodes must end alike. So the
// all-reduces carry the decision themselves: each node puts its Word into the buffer, the operation
// is max, and what follows comes from the result, the same everywhere. A size ends after kShare,
// and after kFewestRounds at least. All ends with the last size, when kBudget is spent (a size with
// fewer rounds is not decided), or when going through one node has lost on all nodes: it would lose
// all the more with more bytes.
//
// Thread safety: none. Pure code: times come in.
class AllReduceTrial {
 public:
  static constexpr std::chrono::nanoseconds kBudget = std::chrono::milliseconds(100);
  // Of a size; half of the budget is for large ones over slow lines, whose fewest rounds take
  // longer.
  static constexpr std::chrono::nanoseconds kShare = kBudget / (2 * kTriedBytes.size());
  static constexpr int kFewestRounds = 3;
  static constexpr int kMostRounds = 16;
  static constexpr int kCountedInGroup = 4;

  struct Step {
    std::size_t bytes = 0;
    bool flat = true;
  };
  // What the buffer begins with.
  struct Word {
    double elapsed_seconds = 0;  // since the first all-reduce had ended
    double flat_may_win = 1;     // at the next size: 1 or 0
  };

  bool over() const noexcept { return size_ == kTriedBytes.size(); }
  // The next all-reduce, and this node's word in it. Requirement: !over().
  Step step() const noexcept;
  const Word& word() const noexcept { return word_; }
  // It has ended, with the greatest of the nodes' words. Requirement: !over().
  void OnDone(TimePoint finished, const Word& greatest);

  // Of the sizes that were decided.
  const std::vector<AllReduceTimes>& times() const noexcept { return times_; }

 private:
  using Samples = std::vector<std::chrono::nanoseconds>;

  void EndGroup(std::chrono::nanoseconds took);
  void EndSize();

  std::size_t size_ = 0;  // place in kTriedBytes
  int round_ = 0;
  bool flat_ = true;
  int done_ = 0;  // all-reduces of this group
  TimePoint group_began_;
  std::array<Samples, 2> samples_;  // of this size: by doubling, flat; for one all-reduce
  bool begun_ = false;
  TimePoint began_;
  Word word_;
  // By the slowest node's clock, as all have heard:
  double elapsed_ = 0;
  double size_began_ = 0;
  std::vector<AllReduceTimes> times_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SCHEDULE_ROUTES_ALL_REDUCE_TRIAL_H_
