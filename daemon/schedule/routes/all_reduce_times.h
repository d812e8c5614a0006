// How long small all-reduces take through one node and by recursive doubling, and what follows from
// it.
//
// Thread safety: plain data and pure functions; any thread.
#ifndef RINGD_DAEMON_SCHEDULE_ROUTES_ALL_REDUCE_TIMES_H_
#define RINGD_DAEMON_SCHEDULE_ROUTES_ALL_REDUCE_TIMES_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <span>

namespace ringd {

// The sizes that are tried, in this order. Buffers for 16 nodes' inputs of the last are within what
// a flat all-reduce may take (AlgorithmOptions::flat_all_reduce_bytes); beyond it the ring
// competes, too.
inline constexpr std::array<std::size_t, 4> kTriedBytes = {64, 1024, 4096, 16384};

struct AllReduceTimes {
  std::size_t bytes = 0;
  std::chrono::nanoseconds flat{0};  // through one node and back
  std::chrono::nanoseconds doubling{0};

  friend bool operator==(const AllReduceTimes&, const AllReduceTimes&) = default;
};

// The largest buffer that should go through one node, by the times of the first so many of
// kTriedBytes. It must win by 5 %. Between a size at which it wins and one at which it loses, both
// times are taken for straight lines; where it has lost nowhere, `assumed` holds if the sizes
// beyond were not tried.
std::size_t LargestFlat(std::span<const AllReduceTimes> times, std::size_t assumed) noexcept;

// The largest buffers for which the trees of the rank exchange (proto/rank_exchange) are worth
// while.
struct RankExchangeSizes {
  std::size_t flat = 0;     // 0: for none
  std::size_t knomial = 0;  // beyond `flat`, if it is more than that
};

// What follows for the rank exchange. Its flat tree goes through one node as well, and spares the
// daemons, which is taken for 55 % of the time of the smallest buffer (8 nodes on two processors:
// 150 µs instead of 360). The k-nomial tree takes that once for each of its levels, and of what
// bytes cost beyond it the share that its fullest line carries of the hub's line in the flat one.
// Neither is faster than its line, which is known from the two largest buffers: a trial is short
// enough for the network to swallow it, a job is not. `assumed`: as above, for the flat tree; the
// k-nomial one is for sizes that were tried.
RankExchangeSizes SizesForRankExchange(std::span<const AllReduceTimes> times,
                                       std::size_t node_count, std::size_t assumed) noexcept;

}  // namespace ringd

#endif  // RINGD_DAEMON_SCHEDULE_ROUTES_ALL_REDUCE_TIMES_H_
