// The lane of ranks on several nodes: this node carries their operations out, over the wire.
#ifndef RINGD_DAEMON_LANES_WIRE_WIRE_LANE_H_
#define RINGD_DAEMON_LANES_WIRE_WIRE_LANE_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/communicator.h"
#include "daemon/execution/buffer_pool.h"
#include "daemon/execution/execution.h"
#include "daemon/execution/reducers.h"
#include "daemon/jobs/membership/membership.h"
#include "daemon/lanes/lane.h"
#include "daemon/lanes/rank_exchange/rank_exchange_watch.h"
#include "daemon/lanes/wire/wire_meter.h"
#include "daemon/schedule/node/operation_scheduler.h"
#include "daemon/sessions/isolated_executor.h"
#include "daemon/sessions/session.h"
#include "proto/base/clock.h"

namespace ringd {

// Operations wait for a fusion buffer, are posted with their guards, and land: their results are
// copied to the ranks. Small ones the ranks may carry out themselves, in the rank exchange.
//
// Thread safety: none; the progress thread owns it.
// Ownership: of the backend's communicator and of what is under way; borrows the members, the
//   scheduler and `events`, which must outlive it.
// Invariant: after Fail() nothing is written to a rank's memory once ReducersLinger() is false; it
//   stays mapped until the backend has let go of it (Quiet). If a reducer is amid a piece just
//   then, that is when it has ended.
class WireLane final : public Lane {
 public:
  struct Options {
    Reducers* reducers = nullptr;  // null: there are none; else must outlive this
    // For turns on what members hold, too, and its end; null: here. Must outlive this.
    IsolatedExecutor* isolated = nullptr;
    bool measures = true;  // somebody plans by it
  };

  WireLane(Options options, std::unique_ptr<Communicator> wire,
           std::shared_ptr<const Membership> membership,
           const std::vector<std::shared_ptr<Session>>& members, OperationScheduler& scheduler,
           LaneEvents& events);
  ~WireLane() override;

  bool CombinesLocally() const noexcept override { return false; }

  absl::Status Start(std::unique_ptr<Execution> execution, NodeIndex root,
                     std::uint64_t digest) override;
  void Cancel(OperationId id, Clock::time_point now) override;
  void Retire(std::uint32_t channel) override;
  absl::StatusOr<std::size_t> Advance(Clock::time_point now) override;
  bool CopyPiece() override;
  void Fail(absl::string_view reason) override;
  bool ReducersLinger() const noexcept override;
  bool Busy() const noexcept override { return !running_.empty(); }
  bool AnyUnderWay(const std::function<bool(const TensorList&)>& is_wanted) const override;
  bool Quiet() const noexcept override { return running_.empty() && released_.empty(); }

  void Look(Clock::time_point now) override;
  std::optional<Clock::time_point> NextLook(Clock::time_point now) const override;
  bool RanksRest() const noexcept override;
  std::optional<Clock::time_point> WaitingSince(Clock::time_point before) const override;
  void AddWaiting(Clock::time_point before, std::size_t most, bool& all,
                  std::vector<WaitingSubmission>& waiting) const override;
  bool AllHaveSubmitted(const std::string& tensor, const std::vector<int>& absent) const override;
  // Who waits in the rank exchange has it; who holds what others need there keeps them waiting.
  std::vector<int> MembersWithout(const std::string& tensor,
                                  std::vector<int> absent) const override;
  Carried CarriedByRanks() const noexcept override;
  void AddCounters(int member, MemberCounters& counters) const noexcept override;

  std::optional<std::vector<LinkObservation>> TakeMeasurements(bool idle, Epoch epoch,
                                                               Clock::time_point now) override;
  absl::Status Health() const override { return wire_->health(); }
  std::optional<NodeIndex> LostNode() const override;
  bool LostNodeIsUnreached() const override { return wire_->lost_node_is_unreached(); }
  CommunicatorStatistics Statistics() const override { return wire_->Statistics(); }
  ChannelTime TimeOf(std::uint32_t channel) const override { return meter_.TimeOf(channel); }
  absl::Status OpenRankExchange(std::vector<UniqueFd> connections) override;
  const RankExchangeWatch* rank_exchange() const noexcept override { return rank_exchange_.get(); }

 private:
  struct Running {
    std::unique_ptr<Execution> execution;
    NodeIndex root{0};
    std::uint64_t digest = 0;
    bool has_buffer = false;
    bool posted = false;
    bool landing = false;  // completed by the backend; results are still on their way to the ranks
    std::optional<OperationId> guard;  // it has been posted (OperationScheduler::GuardOf)
    bool agreed = false;               // it has been completed
    bool moved = false;                // the data has been, or there is none
  };
  struct Landing {
    OperationId id;
    Clock::time_point arrived;  // when the backend had completed it
  };
  // Memory that nobody's result will be in, until nobody uses it.
  struct Released {
    std::unique_ptr<Execution> execution;
    bool by_backend = false;  // it has let go
  };

  // Nodes start it in one order, so it may wait until earlier ones have given memory back.
  bool MayWaitForMemory(OperationId id) const noexcept { return !scheduler_.IsLearned(id); }
  // Posts what waits for that, as far as there is room and memory.
  absl::StatusOr<std::size_t> PostStarted(Clock::time_point now);
  // kResourceExhausted: there is no memory for it.
  absl::Status GiveBuffer(Running& running);
  // The operation, and before it its guard. False: there is no room, come again.
  [[nodiscard]] bool Post(OperationId id, Running& running);
  // `failure`: why the communicator must fail, if that follows from it.
  void OnCompletion(const Completion& completion, absl::Status& failure);
  absl::Status DescribeOutcome(const Completion& completion) const;
  // Copies a piece of what waits for nothing else, and finishes what is in place. Returns the work
  // done.
  std::size_t Land();
  void Release(OperationId id, std::unique_ptr<Execution> execution, bool by_backend);
  void DropReleased();

  const Options options_;
  std::unique_ptr<Communicator> wire_;
  const std::shared_ptr<const Membership> membership_;
  const std::vector<std::shared_ptr<Session>>& members_;
  OperationScheduler& scheduler_;
  LaneEvents& events_;
  bool failed_ = false;
  std::unique_ptr<RankExchangeWatch> rank_exchange_;  // null: none has been opened

  BufferPool buffers_;  // before those who borrow from it
  std::unordered_map<OperationId, Running> running_;
  std::list<OperationId> to_post_;  // in the order in which they were started
  // Cancelled or failed, but the backend or reducers may still read or write its memory.
  std::unordered_map<OperationId, Released> released_;
  std::vector<Landing> landing_;      // of running_, the oldest first
  std::size_t negotiated_bytes_ = 0;  // fusion buffers of those that MayWaitForMemory, posted
  WireMeter meter_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_LANES_WIRE_WIRE_LANE_H_
