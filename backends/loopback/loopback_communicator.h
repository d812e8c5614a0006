// One node's end of a communicator inside a LoopbackHub.
#ifndef RINGD_BACKENDS_LOOPBACK_LOOPBACK_COMMUNICATOR_H_
#define RINGD_BACKENDS_LOOPBACK_LOOPBACK_COMMUNICATOR_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "backends/collectives/in_place_accessor.h"
#include "backends/communicator.h"
#include "backends/loopback/loopback_hub.h"

namespace ringd {

// Thread safety: its Transport's progress thread; what it shares with others is in the hub.
// Ownership: shares the hub's state.
class LoopbackCommunicator final : public Communicator {
 public:
  // `on_close` takes it off its Transport's list.
  LoopbackCommunicator(std::shared_ptr<LoopbackHub::State> hub, const CommunicatorSpec& spec,
                       std::function<void()> on_close);
  ~LoopbackCommunicator() override;

  [[nodiscard]] bool TryPost(const CollectiveRequest& request) noexcept override;
  std::size_t Poll(std::span<Completion> out) noexcept override;
  void Cancel(OperationId id) noexcept override;
  void Abort(absl::string_view reason) noexcept override;
  absl::Status health() const override { return health_; }
  NodeIndex lost_node() const noexcept override { return lost_node_; }
  CommunicatorStatistics Statistics() const override;

  // For the Transport: goes on with what is in flight; returns the amount of work done.
  std::size_t Advance() noexcept;
  // Completions that nobody has polled do not count; inputs or results that could be moved do.
  bool HasPendingWork() noexcept;

 private:
  static constexpr std::size_t kMaxInFlight = kMaxInFlightOperations;

  struct Posted {
    CollectiveRequest request;
    CollectiveTimes times;
    InPlaceAccessor in_place;
    std::vector<std::byte> input;  // as far as it was ready, where it lies in the buffer
    std::size_t taken = 0;         // the input's blocks below this byte are in it
    bool given = false;            // it is in the exchange, or none is needed of this node

    BufferAccessor& accessor() noexcept {
      return request.accessor != nullptr ? *request.accessor : in_place;
    }
  };

  // Moves what can be moved for one operation. True if it has finished.
  bool AdvanceOne(Posted& posted, CollectiveOutcome& outcome, NodeIndex& culprit,
                  std::size_t& work) noexcept;
  // Copies what is ready of the node's input. True if it has all.
  bool TakeInput(Posted& posted) noexcept;
  void HandOver(Posted& posted) noexcept;
  void GiveInput(Posted& posted, LoopbackExchange& exchange) noexcept
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(hub_->mutex);
  void Combine(const CollectiveRequest& request, LoopbackExchange& exchange) noexcept
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(hub_->mutex);
  void Leave(OperationId id) noexcept ABSL_EXCLUSIVE_LOCKS_REQUIRED(hub_->mutex);
  void WakeOthers() noexcept ABSL_EXCLUSIVE_LOCKS_REQUIRED(hub_->mutex);
  void LookForLostNodes() noexcept;
  void FailAll(CollectiveOutcome outcome, NodeIndex culprit, absl::Status cause) noexcept;
  void Finish(const Posted& posted, CollectiveOutcome outcome, NodeIndex culprit) noexcept;

  const std::shared_ptr<LoopbackHub::State> hub_;
  const CommunicatorSpec spec_;
  const std::function<void()> on_close_;
  const std::size_t self_;
  const std::size_t node_count_;
  std::map<OperationId, Posted> posted_;
  std::map<std::uint32_t, std::uint64_t> next_sequence_;  // by channel
  std::vector<Completion> finished_;
  absl::Status health_;
  CollectiveOutcome failure_outcome_ = CollectiveOutcome::kDone;
  NodeIndex failure_culprit_{-1};
  NodeIndex lost_node_{-1};
  CommunicatorStatistics totals_;
  NeighbourStatistics traffic_;  // with all others together
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_LOOPBACK_LOOPBACK_COMMUNICATOR_H_
