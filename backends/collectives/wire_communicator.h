// A Communicator made of our own algorithms over a network that carries messages.
#ifndef RINGD_BACKENDS_COLLECTIVES_WIRE_COMMUNICATOR_H_
#define RINGD_BACKENDS_COLLECTIVES_WIRE_COMMUNICATOR_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "backends/collectives/busy_communicators.h"
#include "backends/collectives/early_messages.h"
#include "backends/collectives/flat_all_reduce.h"
#include "backends/collectives/message.h"
#include "backends/collectives/message_wire.h"
#include "backends/collectives/operation.h"
#include "backends/communicator.h"

namespace ringd {

// Sorts messages to the operations in flight, keeps those that come before their operation was
// posted, and drops those that come after it ended.
//
// Thread safety: the progress thread only.
// Ownership: owns its end of the wire and all operations. The pool and `busy` must outlive it.
// Invariants:
//   - it is in `busy` if it has operations under way;
//   - an id is in `in_flight_`, or in `early_`, or below its channel's next sequence, or
//     unknown; only an unknown id gets a list in `early_`;
//   - after the first failure nothing is in `early_`, and messages are discarded.
class WireCommunicator final : public Communicator {
 public:
  // Operations posted and not yet polled.
  static constexpr std::size_t kMaxInFlight = kMaxInFlightOperations;

  // Requirement: the spec is sensible (self and addresses fit together).
  WireCommunicator(const CommunicatorSpec& spec, std::unique_ptr<MessageWire> wire,
                   EarlyMessagePool& pool, BusyCommunicators& busy);
  ~WireCommunicator() override;

  [[nodiscard]] bool TryPost(const CollectiveRequest& request) noexcept override;
  std::size_t Poll(std::span<Completion> out) noexcept override;
  void Cancel(OperationId id) noexcept override;
  void Abort(absl::string_view reason) noexcept override;
  absl::Status health() const override { return health_; }
  NodeIndex lost_node() const noexcept override { return lost_node_; }
  bool lost_node_is_unreached() const noexcept override { return is_unreached_; }
  CommunicatorStatistics Statistics() const override;

  // For the Transport.

  // A message with the right magic, wire id and destination; all else is unchecked.
  void OnMessage(const MessageHeader& header, std::span<const std::byte> payload) noexcept;
  // A message, as for OnMessage, has come and could not be taken in here: what it was for is over.
  void OnMessageLost(const MessageHeader& header, absl::string_view reason) noexcept;
  // Everything that involves `node` is over. `reason` is the vendor's text.
  void OnNodeLost(NodeIndex node, absl::string_view reason) noexcept;
  // The same where there never was a connection to it.
  void OnNodeUnreached(NodeIndex node, absl::string_view reason) noexcept;
  // `node` did what no correct node does: `reason` goes on after its name ("sends ...").
  void OnNodeMisbehaved(NodeIndex node, absl::string_view reason) noexcept;
  // Lets operations go on; returns the amount of work done.
  std::size_t Advance() noexcept;
  // Whether it has operations under way; if not, it is not in `busy` any more.
  bool StaysBusy() noexcept { return is_busy_ = !active_.empty(); }
  // Advance() would do something now.
  bool HasPendingWork() const noexcept;

 private:
  bool IsFromPeer(const MessageHeader& header) const noexcept;
  // A wire that counts, so that statistics need no help from the network.
  class CountingWire;
  struct Traffic {
    std::uint64_t bytes_sent = 0;
    std::uint64_t bytes_received = 0;
    std::uint64_t messages_sent = 0;
    std::uint64_t messages_received = 0;
  };

  // Of flows, in one turn, the last message whole: as much as one arriving message brings along.
  static constexpr std::size_t kTurnBytes = kMaxPayloadBytes;
  // Early messages of all operations together, and the memory that they take. A correct set of
  // peers stays below: of what is sent unasked the hub of a flat all-reduce gets one message for
  // each node and operation in flight; a ring's neighbour that is ahead by all of them sends 512
  // MiB, and in recursive doubling each node with which this one exchanges 256 MiB.
  static constexpr std::size_t kMaxEarlyMessages =
      kMaxInFlight * static_cast<std::size_t>(FlatAllReduce::kMaxNodes);
  std::size_t MaxEarlyBytes() const noexcept;

  bool IsLate(OperationId id) const noexcept;
  void HoldEarly(const MessageHeader& header, std::span<const std::byte> payload) noexcept;
  // Of whose early messages most is held: of their number or of their memory.
  NodeIndex FarthestAhead(bool by_number) const;
  void RetireEarlyUpTo(OperationId id) noexcept;
  // `what` goes before the node's name.
  void Lose(NodeIndex node, absl::string_view what, absl::string_view reason) noexcept;
  void FailAll(CollectiveOutcome outcome, NodeIndex culprit, absl::Status cause) noexcept;
  void Complete(Operation& operation) noexcept;
  void CompleteIfFinished(Operation& operation) noexcept;

  const CommunicatorSpec spec_;
  EarlyMessagePool& pool_;
  BusyCommunicators& busy_;
  bool is_busy_ = false;          // it is in there
  std::vector<Traffic> traffic_;  // by node
  std::unique_ptr<MessageWire> wire_;
  std::unique_ptr<CountingWire> counting_wire_;
  OperationSetting setting_;
  std::size_t turn_bytes_ = kTurnBytes;

  std::vector<std::unique_ptr<Operation>> operations_;  // all ever needed, for reuse
  std::vector<Operation*> free_;
  std::vector<Operation*> active_;  // posted and not finished, failed ones included
  absl::flat_hash_map<OperationId, Operation*> in_flight_;  // those of them that take messages
  absl::flat_hash_map<OperationId, EarlyMessageList> early_;
  std::size_t early_count_ = 0;
  std::size_t early_bytes_ = 0;  // taken
  // By channel: one more than the last sequence posted or given up; 64 bits, so that it has room.
  absl::flat_hash_map<std::uint32_t, std::uint64_t> next_sequence_;

  std::vector<Completion> finished_;  // to be polled; [0, polled_) have been
  std::size_t polled_ = 0;

  absl::Status health_;
  NodeIndex lost_node_{-1};
  bool is_unreached_ = false;
  NodeIndex failure_culprit_{-1};
  CollectiveOutcome failure_outcome_ = CollectiveOutcome::kDone;

  CommunicatorStatistics totals_;  // without neighbours
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_COLLECTIVES_WIRE_COMMUNICATOR_H_
