// What a node does for the operations of a communicator that matches by order.
#ifndef RINGD_DAEMON_SCHEDULE_NODE_ORDERED_SCHEDULER_H_
#define RINGD_DAEMON_SCHEDULE_NODE_ORDERED_SCHEDULER_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "daemon/schedule/node/node_actions.h"
#include "daemon/schedule/node/operation_scheduler.h"
#include "daemon/schedule/protocol/messages.h"
#include "daemon/schedule/protocol/tensor_meta.h"
#include "proto/shm/ordered_operation.h"
#include "proto/types/ids.h"

namespace ringd {

// A tensor's handle is a place here (proto/shm/ordered_operation.h), and an operation is started as
// soon as the local ranks have submitted it alike and all before it have been started, or have
// ended. Nothing is asked or told unless something does not fit; then the coordinator is told by
// Ready, asks all nodes (OrderInquiry), and answers all with one FailTensor.
// daemon/schedule/README.md has the protocol.
//
// Thread safety: none; one thread owns it. Never blocks, reads no clock.
// Invariants:
//   1. An operation that has been announced to the coordinator ends by its word alone.
//   2. Operations are started in the order of their numbers, so in one order on all nodes. (Which
//      of them become ready first hangs on which earlier ones have ended here.)
class OrderedScheduler final : public OperationScheduler {
 public:
  // How an operation goes over the wire: its data in one channel of its place, and in another a
  // barrier, its guard, that ends only when all nodes have come with the same description. So it
  // ends well nowhere unless it does everywhere, whatever its kind. Channel 0 is none of them.
  static constexpr OperationId DataId(std::uint32_t place, std::uint32_t occurrence) noexcept {
    return {2 * place + 2, occurrence};
  }
  static constexpr OperationId GuardId(OperationId data) noexcept {
    return {data.channel + 1, data.sequence};
  }
  static constexpr TensorHandle PlaceOf(OperationId data) noexcept {
    return TensorHandle(data.channel / 2 - 1);
  }

  // `first_rank`: the node's lowest, which speaks for all where they agree.
  explicit OrderedScheduler(Rank first_rank);

  // Operations are called by their numbers: a place's is that of the operation which is under way
  // there, or comes next.
  TensorHandle Intern(absl::string_view name) override;
  std::string NameOf(TensorHandle place) const override;
  std::optional<NamedOccurrence> Find(absl::string_view name) const override;
  TensorState StateOf(TensorHandle /*place*/) const override { return TensorState::kRunning; }

  void OnLocallyReady(TensorHandle place, const TensorMeta& meta, bool follows_wait,
                      TimePoint now) override;
  void OnLocalMismatch(TensorHandle place, std::vector<RankMeta> reports, TimePoint now) override;
  void OnFinished(OperationId id, TimePoint now) override;
  bool OnDisagreement(OperationId id) override;

  // kInternal: none that a coordinator sends here.
  absl::Status OnMessage(const CoordinatorMessage& message, TimePoint now) override;
  // kInternal: there is no such operation any more, or it is no operation's name.
  absl::Status OnInquiry(absl::string_view name) override;

  // Nothing here has a time.
  void OnTick(TimePoint /*now*/, const LocalRankView& /*ranks*/) override {}
  std::optional<TimePoint> NextTick() const override { return std::nullopt; }

  void TakeActions(std::vector<Action>& out) override;

  bool IsLearned(OperationId /*operation*/) const noexcept override { return false; }
  std::optional<OperationId> GuardOf(OperationId data) const noexcept override {
    return GuardId(data);
  }
  OperationId OperationOf(OperationId completed) const noexcept override {
    return {completed.channel - completed.channel % 2, completed.sequence};
  }
  // Of everything by which two descriptions differ, the same on all nodes.
  std::uint64_t DigestOf(const TensorMeta& meta) const noexcept override;

  // Nothing is planned, so nobody measures.
  std::vector<TensorReadiness> TakeReadiness() override { return {}; }
  NodeSchedulerStatus Status() const override { return {}; }
  Epoch epoch() const override { return 0; }

 private:
  struct Place {
    std::uint32_t occurrence = 0;
    bool ready = false;  // what follows is of this occurrence
    bool started = false;
    bool announced = false;
    std::optional<std::uint32_t> asked_for;  // an occurrence to announce when it is ready
    std::vector<RankMeta> reports;
    TensorList list;  // the place alone
  };

  std::uint64_t NumberAt(std::uint32_t place) const noexcept {
    return OrderedNumberOf(place, places_[place].occurrence);
  }
  void Announce(std::uint32_t place);
  void GoOn(std::uint32_t place);
  // Starts what is ready, up to the first that is not, or that fails and has not ended.
  void StartInOrder();

  const Rank first_rank_;
  std::array<Place, kOrderedPlaces> places_;
  std::uint64_t next_start_ = 0;  // all operations below have been started, or have ended
  std::vector<Action> actions_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SCHEDULE_NODE_ORDERED_SCHEDULER_H_
