// An open rank exchange as its ringd sees it: hands it to the node's ranks, and looks on.
#ifndef RINGD_DAEMON_LANES_RANK_EXCHANGE_RANK_EXCHANGE_WATCH_H_
#define RINGD_DAEMON_LANES_RANK_EXCHANGE_RANK_EXCHANGE_WATCH_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/sessions/isolated_executor.h"
#include "daemon/sessions/session.h"
#include "proto/base/clock.h"
#include "proto/base/memory_mapping.h"
#include "proto/base/unique_fd.h"
#include "proto/rank_exchange/rank_exchange.h"
#include "proto/rank_exchange/rank_exchange_segment.h"

namespace ringd {

// A member that is in an operation which has not ended.
struct RankExchangeWait {
  int member = 0;
  std::uint32_t registration = 0;  // of its session, as it says: check it
  Clock::time_point since;         // as it says; not later than now
};

struct RankExchangeMemberCounters {
  std::uint64_t completed = 0;
  std::uint64_t bytes = 0;  // of tensors completed
};

// proto/rank_exchange/rank_exchange.h has the protocol. The members do not wake ringd.
//
// Thread safety: none; the progress thread owns it.
// Ownership: owns the segment and ringd's descriptors; the members keep theirs as long as they
//   like.
// Trust: everything read here was written by clients. It is shown, and used to tell who waits for
//   whom; nothing is indexed by it.
class RankExchangeWatch {
 public:
  // No connections are handed out while so many tasks of `isolated` have not ended.
  static constexpr std::size_t kMostBacklog = 64;
  // Makes the segment and hands it, and the connections, to the members. `connections` by node, the
  // own node's place empty. `isolated` makes all calls on the connections, which the members could
  // hold up, and must outlive this; null: they are made here.
  //   kResourceExhausted: `isolated` is behind by too much. What the kernel says.
  static absl::StatusOr<std::unique_ptr<RankExchangeWatch>> Create(
      const RankExchangeGeometry& geometry, std::vector<UniqueFd> connections,
      std::span<const std::shared_ptr<Session>> members, IsolatedExecutor* isolated = nullptr);
  ~RankExchangeWatch();
  RankExchangeWatch(const RankExchangeWatch&) = delete;
  RankExchangeWatch& operator=(const RankExchangeWatch&) = delete;

  // How many descriptors each member was sent, besides the segment's
  // (JoinReply::rank_exchange_connections).
  std::uint32_t connection_count() const noexcept { return connection_count_; }
  std::uint32_t limit_bytes() const noexcept { return view_.limit_bytes(); }
  std::uint32_t flat_bytes() const noexcept { return view_.flat_bytes(); }

  // How often Look wants to be called. It does nothing if it comes much sooner.
  static constexpr std::chrono::milliseconds kLookInterval{100};
  // Sees to it that a turn as the driver is taken soon, if nobody has the role, and notes what has
  // come to stand still.
  void Look(Clock::time_point now);

  // True if an operation takes far longer than any should.
  bool late() const noexcept { return late_; }
  // What members have been in since `before` or longer.
  std::vector<RankExchangeWait> Waiting(Clock::time_point before, Clock::time_point now) const;
  // Members who hold what all others need, the driver's role or the lock, and had not moved for a
  // second when Look came last: stopped, as a rule.
  std::vector<int> Holders() const;

  // Why it is no longer used, once that has been so for a second: then a better cause would have
  // come.
  std::optional<RankExchangeBreak> Broken(Clock::time_point now) const;
  // True if a member waits for the parent's decision, or the other's of a pair, and the connection
  // over which it would come has ended.
  bool LacksDecision() const noexcept;

  // Operations of this node in the rank exchange, and those that then went the other way.
  std::uint64_t completed() const noexcept;
  std::uint64_t given_up() const noexcept;
  RankExchangeMemberCounters Counters(int member) const noexcept;

 private:
  // Who held something when Look came, and since when.
  struct Holder {
    std::uint32_t who = kRankExchangeNobody;
    std::uint64_t turns = 0;
    Clock::time_point since;
  };
  // What a turn needs, which may last longer than its watch.
  struct Driving {
    void TakeTurn();

    MemoryMapping segment;
    std::unique_ptr<RankExchange> exchange;
    std::atomic<bool> has_turn = false;  // one has been asked for and not ended
  };

  RankExchangeWatch(std::shared_ptr<Driving> driving, std::uint32_t connection_count,
                    IsolatedExecutor* isolated);

  // Bits of members with a part in an operation that has not ended.
  std::uint64_t MembersAtIt() const noexcept;

  std::shared_ptr<Driving> driving_;
  const RankExchangeView view_;
  const std::uint32_t connection_count_;
  IsolatedExecutor* const isolated_;
  Clock::time_point last_look_;
  Holder driver_;
  Holder lock_;
  bool late_ = false;
  std::optional<Clock::time_point> broken_since_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_LANES_RANK_EXCHANGE_RANK_EXCHANGE_WATCH_H_
