#include "daemon/schedule/planning/bucket_planner.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <utility>

namespace ringd {
namespace {

using std::chrono::nanoseconds;

// Plans assume a slightly slower link than measured: a bucket that is planned to end just in time
// delays the step if the link disappoints, while one that ends early costs nothing.
constexpr double kPlanningMargin = 1.1;

// Buckets are joined only where that would delay the step no more on a link so many times slower:
// in busy nodes a bucket takes up to twice as long as the link alone would, and joining gains
// little.
constexpr double kJoiningMargin = 2;

// A bucket is worth its fixed cost (messages, overhead) when it costs this many times as much.
constexpr int kWorthwhile = 10;

// The search is quadratic in the number of pieces, and the engine waits for it: some 3 ms for so
// many. More tensors than this are put together before.
constexpr std::size_t kMaxPieces = 512;

// Consecutive tensors of one class that the search does not take apart.
struct Piece {
  std::vector<std::size_t> tensors;
  std::size_t bytes = 0;
  nanoseconds ready{0};
  std::size_t segment = 0;  // counts barriers: a bucket stays within one segment
};

struct ClassifiedTensors {
  std::vector<std::size_t> tensors;
  std::size_t bytes = 0;
};

// Positions by fusion class, in readiness order.
std::map<std::uint32_t, ClassifiedTensors> SplitByClass(const std::vector<PlanTensor>& tensors) {
  std::map<std::uint32_t, ClassifiedTensors> classes;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    ClassifiedTensors& members = classes[tensors[i].fusion_class];
    members.tensors.push_back(i);
    members.bytes += tensors[i].bytes;
  }
  return classes;
}

// For each position, how many barriers stand before or at it.
std::vector<std::size_t> Segments(const std::vector<PlanTensor>& tensors) {
  std::vector<std::size_t> segments(tensors.size());
  std::size_t segment = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].barrier_before) ++segment;
    segments[i] = segment;
  }
  return segments;
}

std::vector<Piece> CutIntoPieces(const std::vector<PlanTensor>& tensors,
                                 const std::vector<std::size_t>& segments,
                                 const ClassifiedTensors& members, std::size_t max_bytes) {
  const bool all_apart = members.tensors.size() <= kMaxPieces;
  // Two neighbouring pieces have more than one of these together, so there are fewer than twice
  // kMaxPieces, and mostly half of it, but for barriers.
  const std::size_t piece_bytes = all_apart ? 0 : 2 * members.bytes / kMaxPieces;
  const std::size_t piece_count = all_apart ? 1 : 2 * members.tensors.size() / kMaxPieces;
  std::vector<Piece> pieces;
  for (std::size_t position : members.tensors) {
    const PlanTensor& tensor = tensors[position];
    if (pieces.empty() || pieces.back().segment != segments[position] ||
        pieces.back().tensors.size() >= piece_count ||
        pieces.back().bytes + tensor.bytes > std::min(piece_bytes, max_bytes)) {
      pieces.emplace_back();
      pieces.back().segment = segments[position];
    }
    Piece& piece = pieces.back();
    piece.tensors.push_back(position);
    piece.bytes += tensor.bytes;
    piece.ready = std::max(piece.ready, tensor.ready);
  }
  return pieces;
}

// Where the best way to send pieces 0 .. j-1 ends, and where its last bucket begins.
struct Prefix {
  nanoseconds finish{0};
  std::size_t buckets = 0;
  std::size_t last_begin = 0;
};

// An earlier end of the same prefix is never worse for what follows, so the best prefixes compose.
// Among equal ends the one with fewer buckets wins.
std::vector<Prefix> BestPrefixes(const std::vector<Piece>& pieces, const LinkModel& link,
                                 std::size_t max_bytes) {
  std::vector<Prefix> best(pieces.size() + 1);
  for (std::size_t end = 1; end <= pieces.size(); ++end) {
    best[end].finish = nanoseconds::max();
    std::size_t bytes = 0;
    nanoseconds ready{0};
    for (std::size_t begin = end; begin-- > 0;) {
      if (pieces[begin].segment != pieces[end - 1].segment) break;
      bytes += pieces[begin].bytes;
      if (bytes > max_bytes && begin + 1 < end) break;
      ready = std::max(ready, pieces[begin].ready);
      const nanoseconds finish = std::max(ready, best[begin].finish) + link.AllReduceTime(bytes);
      const std::size_t buckets = best[begin].buckets + 1;
      if (finish < best[end].finish ||
          (finish == best[end].finish && buckets < best[end].buckets)) {
        best[end] = {finish, buckets, begin};
      }
    }
  }
  return best;
}

// Consecutive pieces that travel together.
struct Range {
  nanoseconds ready{0};
  std::size_t bytes = 0;
  std::size_t begin = 0;
  std::size_t end = 0;
};

std::vector<Range> BestRanges(const std::vector<Piece>& pieces, const std::vector<Prefix>& best) {
  std::vector<Range> ranges;
  for (std::size_t end = pieces.size(); end > 0; end = best[end].last_begin) {
    Range range{nanoseconds(0), 0, best[end].last_begin, end};
    for (std::size_t i = range.begin; i < end; ++i) {
      range.ready = std::max(range.ready, pieces[i].ready);
      range.bytes += pieces[i].bytes;
    }
    ranges.push_back(range);
  }
  std::reverse(ranges.begin(), ranges.end());
  return ranges;
}

bool IsSmall(const Range& range, const LinkModel& link) {
  return link.AllReduceTime(range.bytes) < link.AllReduceTime(0) * kWorthwhile;
}

// What a row of ranges makes of the moment from which the link is theirs: it ends at `alone` (what
// the tensors' readiness allows) or, if that is later, `busy` after that moment.
struct Remainder {
  nanoseconds alone{0};
  nanoseconds busy{0};

  nanoseconds EndAfter(nanoseconds begin) const noexcept { return std::max(alone, begin + busy); }
};

// By position: of that range and those after it; the last one is of none.
std::vector<Remainder> Remainders(const std::vector<Range>& ranges, const LinkModel& link) {
  std::vector<Remainder> remainders(ranges.size() + 1);
  for (std::size_t i = ranges.size(); i-- > 0;) {
    const nanoseconds time = link.AllReduceTime(ranges[i].bytes);
    remainders[i] = {remainders[i + 1].EndAfter(ranges[i].ready + time),
                     remainders[i + 1].busy + time};
  }
  return remainders;
}

// Judges whether two neighbours may be joined: when the row would end.
class JoinCost {
 public:
  JoinCost(const std::vector<Range>& ranges, const LinkModel& link)
      : link_(link),
        remainders_(Remainders(ranges, link)),
        latest_end_(remainders_[0].EndAfter(nanoseconds(0)) + link.operation_overhead) {}

  // `joined` in place of two: of those after them `rest` is the first.
  bool Allows(const Range& joined, std::size_t rest) const noexcept {
    return remainders_[rest].EndAfter(After(joined)) <= latest_end_;
  }
  // `range` stays as it is; what is judged from now on comes after it.
  void Pass(const Range& range) noexcept { passed_ = After(range); }

 private:
  nanoseconds After(const Range& range) const noexcept {
    return std::max(passed_, range.ready) + link_.AllReduceTime(range.bytes);
  }

  const LinkModel& link_;
  const std::vector<Remainder> remainders_;
  const nanoseconds latest_end_;
  nanoseconds passed_{0};  // when those that were passed have ended
};

// Joins neighbours whose fixed cost is much of their cost, where that delays the end by less than
// all these operations cost a processor, which the model does not see, even if the link
// disappoints. The search has no reason to: it ends each prefix as early as it can, needed or not.
std::vector<Range> JoinSmall(const std::vector<Piece>& pieces, const LinkModel& link,
                             std::size_t max_bytes, const std::vector<Range>& ranges) {
  std::vector<Range> joined_ranges;
  if (ranges.empty()) return joined_ranges;
  LinkModel slow = link;
  slow.bytes_per_second /= kJoiningMargin;
  JoinCost cost(ranges, link);
  JoinCost slow_cost(ranges, slow);
  Range left = ranges.front();
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    const Range& right = ranges[i];
    const Range joined{std::max(left.ready, right.ready), left.bytes + right.bytes, left.begin,
                       right.end};
    if (pieces[left.begin].segment == pieces[right.begin].segment && joined.bytes <= max_bytes &&
        (IsSmall(left, link) || IsSmall(right, link)) && cost.Allows(joined, i + 1) &&
        slow_cost.Allows(joined, i + 1)) {
      left = joined;
      continue;
    }
    cost.Pass(left);
    slow_cost.Pass(left);
    joined_ranges.push_back(left);
    left = right;
  }
  joined_ranges.push_back(left);
  return joined_ranges;
}

void AppendBuckets(const std::vector<Piece>& pieces, const std::vector<Range>& ranges,
                   BucketPlan& plan) {
  for (const Range& range : ranges) {
    std::vector<std::size_t>& bucket = plan.emplace_back();
    for (std::size_t i = range.begin; i < range.end; ++i) {
      bucket.insert(bucket.end(), pieces[i].tensors.begin(), pieces[i].tensors.end());
    }
  }
}

nanoseconds BucketReady(const std::vector<PlanTensor>& tensors,
                        const std::vector<std::size_t>& bucket) {
  nanoseconds ready{0};
  for (std::size_t position : bucket) ready = std::max(ready, tensors[position].ready);
  return ready;
}

void SortByReadiness(const std::vector<PlanTensor>& tensors, BucketPlan& plan) {
  std::stable_sort(plan.begin(), plan.end(), [&](const auto& a, const auto& b) {
    const nanoseconds ready_a = BucketReady(tensors, a);
    const nanoseconds ready_b = BucketReady(tensors, b);
    return ready_a != ready_b ? ready_a < ready_b : a.back() < b.back();
  });
}

}  // namespace

BucketPlan CostModelPlanner::Plan(const std::vector<PlanTensor>& tensors,
                                  const LinkModel& link) const {
  BucketPlan plan;
  std::size_t all_bytes = 0;
  for (const PlanTensor& tensor : tensors) all_bytes += tensor.bytes;
  const std::vector<std::size_t> segments = Segments(tensors);
  for (const auto& [fusion_class, members] : SplitByClass(tensors)) {
    // Classes are planned one by one although they share the link: each gets the part of it that
    // its bytes will take.
    LinkModel share = link;
    const double part =
        all_bytes == 0 ? 1.0 : static_cast<double>(members.bytes) / static_cast<double>(all_bytes);
    share.bytes_per_second = link.bytes_per_second * std::max(part, 1e-6) / kPlanningMargin;
    const std::vector<Piece> pieces = CutIntoPieces(tensors, segments, members, max_bucket_bytes_);
    const std::vector<Range> ranges =
        BestRanges(pieces, BestPrefixes(pieces, share, max_bucket_bytes_));
    AppendBuckets(pieces, JoinSmall(pieces, share, max_bucket_bytes_, ranges), plan);
  }
  SortByReadiness(tensors, plan);
  return plan;
}

BucketPlan ThresholdPlanner::Plan(const std::vector<PlanTensor>& tensors,
                                  const LinkModel& /*link*/) const {
  BucketPlan plan;
  const std::vector<std::size_t> segments = Segments(tensors);
  for (const auto& [fusion_class, members] : SplitByClass(tensors)) {
    std::size_t bytes = 0;
    std::size_t segment = std::numeric_limits<std::size_t>::max();
    for (std::size_t position : members.tensors) {
      const std::size_t grown = bytes + tensors[position].bytes;
      if (segments[position] == segment && threshold_bytes_ > 0 && grown <= threshold_bytes_) {
        plan.back().push_back(position);
        bytes = grown;
      } else {
        plan.push_back({position});
        bytes = tensors[position].bytes;
        segment = segments[position];
      }
    }
  }
  SortByReadiness(tensors, plan);
  return plan;
}

std::vector<BucketTimes> PredictBuckets(const std::vector<PlanTensor>& tensors,
                                        const BucketPlan& plan, const LinkModel& link) {
  std::vector<BucketTimes> times(plan.size());
  std::vector<std::size_t> order(plan.size());
  for (std::size_t i = 0; i < plan.size(); ++i) {
    order[i] = i;
    times[i].ready = BucketReady(tensors, plan[i]);
  }
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return times[a].ready != times[b].ready ? times[a].ready < times[b].ready
                                            : plan[a].back() < plan[b].back();
  });
  nanoseconds link_free{0};
  for (const std::size_t i : order) {
    std::size_t bytes = 0;
    for (std::size_t position : plan[i]) bytes += tensors[position].bytes;
    times[i].start = std::max(link_free, times[i].ready);
    times[i].end = link_free = times[i].start + link.AllReduceTime(bytes);
  }
  return times;
}

nanoseconds PredictStepTime(const std::vector<PlanTensor>& tensors, const BucketPlan& plan,
                            const LinkModel& link) {
  nanoseconds finish{0};
  for (const BucketTimes& bucket : PredictBuckets(tensors, plan, link)) {
    finish = std::max(finish, bucket.end);
  }
  return finish;
}

}  // namespace ringd
