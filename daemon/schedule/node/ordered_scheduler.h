// What a node does for the operations of a communicator that matches by order.
#ifndef RINGD_DAEMON_SCHEDULE_NODE_ORDERED_SCHEDULER_H_
#define RINGD_DAEMON_SCHEDULE_NODE_ORDERED_SCHEDULER_H_

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "daemon/schedule/node/node_actions.h"
#include "daemon/schedule/protocol/messages.h"
#include "daemon/schedule/protocol/tensor_meta.h"
#include "proto/shm/ordered_operation.h"
#include "proto/types/ids.h"

namespace ringd {

// Stands in for NodeScheduler there: a tensor's handle is a place (proto/shm/ordered_operation.h),
// and an operation is started as soon as the local ranks have submitted it alike. Nothing is asked
// or told unless something does not fit; then the coordinator is told by Ready, asks all nodes
// (OrderInquiry), and answers all with one FailTensor. daemon/schedule/README.md has the protocol.
//
// Thread safety: none; one thread owns it. Never blocks, reads no clock.
// Invariant: an operation that has been announced to the coordinator ends by its word alone.
class OrderedScheduler {
 public:
  // How an operation goes over the wire: its data in one channel of its place, and in another a
  // barrier, its guard, that ends only when all nodes have come with the same description. So it
  // ends well nowhere unless it does everywhere, whatever its kind. Channel 0 is none of them.
  static constexpr OperationId DataId(std::uint32_t place, std::uint32_t occurrence) noexcept {
    return {2 * place + 2, occurrence};
  }
  static constexpr OperationId GuardOf(OperationId data) noexcept {
    return {data.channel + 1, data.sequence};
  }
  static constexpr bool IsGuard(OperationId id) noexcept { return id.channel % 2 != 0; }
  static constexpr OperationId DataOf(OperationId guard) noexcept {
    return {guard.channel - 1, guard.sequence};
  }
  static constexpr TensorHandle PlaceOf(OperationId data) noexcept {
    return TensorHandle(data.channel / 2 - 1);
  }
  // A digest of everything by which two descriptions differ, the same on all nodes.
  static std::uint64_t DigestOf(const TensorMeta& meta) noexcept;

  // `first_rank`: the node's lowest, which speaks for all where they agree.
  explicit OrderedScheduler(Rank first_rank);

  // All local ranks have submitted the place's next operation. Requirement: the one before it in
  // that place has ended.
  void OnLocallyReady(TensorHandle place, const TensorMeta& meta);
  // Likewise, but they have described it differently: one report of each.
  void OnLocalMismatch(TensorHandle place, std::vector<RankMeta> reports);
  // A message of another node's operation of this number did not fit the one that was started.
  void OnDisagreement(TensorHandle place);
  // Its data is in place.
  void OnFinished(OperationId id);
  // The coordinator asks for this node's description of an operation.
  //   kInternal: there is no such operation any more, or it is no operation's name.
  absl::Status OnInquiry(absl::string_view name);
  // kInternal: none that a coordinator sends here.
  absl::Status OnMessage(const CoordinatorMessage& message);

  // Appends what is to be done.
  void TakeActions(std::vector<Action>& out);

  // Of the operation that is under way in a place, or comes there next.
  std::uint64_t NumberAt(TensorHandle place) const noexcept {
    return OrderedNumberOf(place.value(), places_[place.value()].occurrence);
  }

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

  void Announce(std::uint32_t place);
  void GoOn(std::uint32_t place);

  const Rank first_rank_;
  std::array<Place, kOrderedPlaces> places_;
  std::vector<Action> actions_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SCHEDULE_NODE_ORDERED_SCHEDULER_H_
