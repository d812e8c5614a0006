// What a rank of a job over several nodes needs for the rank exchange: its node's segment, and the
// connections.
#ifndef RINGD_CLIENT_CORE_LANES_RANK_EXCHANGE_RANK_EXCHANGE_MEMORY_H_
#define RINGD_CLIENT_CORE_LANES_RANK_EXCHANGE_RANK_EXCHANGE_MEMORY_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/attach/handshake.h"
#include "proto/base/clock.h"
#include "proto/base/memory_mapping.h"
#include "proto/base/mutex.h"
#include "proto/base/unique_fd.h"
#include "proto/rank_exchange/rank_exchange.h"

namespace ringd::client {

// Filled by the thread that reads ringd's notices; what has come becomes an exchange once.
//
// Thread safety: Add*, MakeExchange: any thread. member: after MakeExchange, immutable.
// Ownership: owns the segment's mapping, which the exchange uses: must outlive it. The connections
//   are its until they go into the exchange.
class RankExchangeMemory {
 public:
  // What ringd sent is mapped and checked here; the first thing wrong is what MakeExchange returns.
  void AddSegment(const RankExchangeNotice& notice, const UniqueFd& fd);
  void AddConnection(const RankExchangeConnectionNotice& notice, UniqueFd fd);

  // Nothing more will come: MakeExchange returns `why`, unless it has returned.
  void GiveUp(const absl::Status& why);

  // Blocks until the segment and as many connections as ringd has announced are there. Call once.
  //   kDeadlineExceeded: ringd has not sent all of it. kInternal, kInvalidArgument,
  //   kFailedPrecondition: what it sent is not what it should be.
  absl::StatusOr<std::unique_ptr<RankExchange>> MakeExchange(std::uint32_t announced,
                                                             Clock::time_point deadline);

  // This process's place among the node's ranks.
  std::uint32_t member() const noexcept { return member_; }

 private:
  absl::Status MapSegment(const RankExchangeNotice& notice, const UniqueFd& fd)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status KeepConnection(const RankExchangeConnectionNotice& notice, UniqueFd fd)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether a rank of this node has a descriptor in the place of `node`.
  bool Expects(std::uint32_t node) const noexcept ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool HasAll() const noexcept ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Note(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  CondVar changed_;
  absl::Status problem_ ABSL_GUARDED_BY(mutex_);
  RankExchangeView view_ ABSL_GUARDED_BY(mutex_);              // of segment_, if that is mapped
  std::vector<UniqueFd> connections_ ABSL_GUARDED_BY(mutex_);  // by node
  // Written under mutex_ until MakeExchange returns; not at all afterwards.
  MemoryMapping segment_;
  std::uint32_t member_ = 0;
};

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_LANES_RANK_EXCHANGE_RANK_EXCHANGE_MEMORY_H_
