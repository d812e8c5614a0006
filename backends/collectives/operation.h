// One collective in flight on this node.
#ifndef RINGD_BACKENDS_COLLECTIVES_OPERATION_H_
#define RINGD_BACKENDS_COLLECTIVES_OPERATION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backends/block_map.h"
#include "backends/collective_request.h"
#include "backends/collectives/algorithm.h"
#include "backends/collectives/dissemination_barrier.h"
#include "backends/collectives/doubling_all_reduce.h"
#include "backends/collectives/early_messages.h"
#include "backends/collectives/flat_all_reduce.h"
#include "backends/collectives/in_place_accessor.h"
#include "backends/collectives/link_probe.h"
#include "backends/collectives/message_wire.h"
#include "backends/collectives/ring.h"
#include "backends/collectives/ring_layout.h"
#include "backends/collectives/tree_broadcast.h"
#include "backends/communicator.h"

namespace ringd {

// What all operations of a communicator share.
struct OperationSetting {
  MessageWire* wire = nullptr;
  EarlyMessagePool* pool = nullptr;
  std::uint64_t wire_id = 0;
  NodeIndex self;
  std::int32_t node_count = 1;
  AlgorithmOptions algorithms;
  // What flows may still hand to the wire in this turn of the communicator.
  std::size_t* turn_bytes = nullptr;
};

// Binds a request to the algorithm that carries it out, and stands between the algorithm and the
// wire: counts what is being sent, keeps what comes too early, and grants the senders credit.
//
// Credit: a sender may send `initial credit` messages of a flow unasked, and no more than the
// receiver has granted. A receiver grants when its request has been posted, up to kGrantWindow
// messages ahead of what it has consumed. So a node that is behind holds a bounded number of
// messages, and as no operation waits for another's credit, the order in which nodes post does not
// matter.
//
// Thread safety: the progress thread only.
// Ownership: the request's buffer and accessor are the caller's. Reused for one request after
// another.
// Invariant: finished() only if no payload of this operation is being read by the wire.
class Operation final : public SendObserver {
 public:
  // Unasked messages per flow: enough to cover the grant's way at 10 Gbit/s and 200 µs.
  static constexpr std::uint32_t kInitialCredit = 2;
  // Messages ahead of consumption: 16 MiB, so that full queues in routers do not throttle the flow.
  static constexpr std::uint32_t kGrantWindow = 128;
  // Messages of one flow handed to the wire at a time. More would only queue there, before others.
  static constexpr std::uint32_t kSendWindow = 4;

  explicit Operation(const OperationSetting& setting) : setting_(setting) {}
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  // For the communicator.

  // Takes a new request; nothing is sent before Advance(). `order`: see SendObserver.
  // Requirement: Unsupported() was false.
  void Begin(const CollectiveRequest& request, std::uint64_t order, CollectiveTimes::TimePoint now);
  static bool Unsupported(const CollectiveRequest& request, std::int32_t node_count) noexcept;

  // A message of this operation, from a valid node. False if it can't be right.
  [[nodiscard]] bool Deliver(const MessageHeader& header,
                             std::span<const std::byte> payload) noexcept;

  // Does what can be done now.
  void Advance() noexcept;

  // Ends it with `outcome` as soon as nothing of it is being sent. The first outcome stays. What
  // waits to be sent is withdrawn, but for a disagreement, of which the other node has to hear.
  void Fail(CollectiveOutcome outcome, NodeIndex culprit) noexcept;
  void WithdrawSends() noexcept;

  // Advance() has something to do: sends have ended, or it stopped in the middle of its work.
  bool wants_advance() const noexcept { return wants_advance_; }
  // Some range was not ready when last asked.
  bool waits_for_accessor() const noexcept { return waits_for_accessor_; }
  bool finished() const noexcept {
    return outstanding_ == 0 && (outcome_ != CollectiveOutcome::kDone || algorithm_->IsComplete());
  }
  CollectiveOutcome outcome() const noexcept { return outcome_; }
  Completion MakeCompletion(CollectiveTimes::TimePoint now) const noexcept;
  void DropEarly() noexcept { early_.Clear(*setting_.pool); }

  // For the algorithms.

  const CollectiveRequest& request() const noexcept { return request_; }
  std::int32_t self() const noexcept { return setting_.self.value(); }
  std::int32_t node_count() const noexcept { return setting_.node_count; }
  const AlgorithmOptions& algorithms() const noexcept { return setting_.algorithms; }
  std::size_t total_bytes() const noexcept { return total_bytes_; }
  RingPlace place() const noexcept {
    return {.node_count = static_cast<std::uint32_t>(node_count()),
            .self = static_cast<std::uint32_t>(self()),
            .chunk_bytes = setting_.algorithms.chunk_bytes};
  }
  // Of the buffer.
  std::byte* at(std::size_t offset) const noexcept { return request_.buffer + offset; }
  std::span<const std::byte> at(ByteRange range) const noexcept {
    return {request_.buffer + range.begin, range.size()};
  }

  // Declares a flow of messages to another node; the receiver declares the same initial credit.
  void SendsTo(std::int32_t node, std::uint32_t initial_credit);
  void ReceivesFrom(std::int32_t node, std::uint32_t message_count, std::uint32_t initial_credit);

  // False also when this turn has been long enough: what is handed over has to be packed first, and
  // other communicators wait. Then Advance() is wanted. Requirement: the flow was declared.
  bool CanSend(std::int32_t node) noexcept;
  // Requirement: CanSend(node). The payload must not change until the send has ended.
  void Send(std::int32_t node, std::uint32_t index, std::span<const std::byte> payload) noexcept;
  std::uint32_t sends_in_progress() const noexcept { return outstanding_; }

  // The request's accessor, or what stands in for them; see BufferAccessor. Ranges are not empty,
  // payloads as long as their range. A null span or false: not ready, offer it again.
  std::span<const std::byte> Input(ByteRange range) noexcept;
  bool AddInput(ByteRange range, std::span<const std::byte> partial) noexcept;
  std::span<const std::byte> AddLastInput(ByteRange range,
                                          std::span<const std::byte> partial) noexcept;
  void OnCombined(ByteRange range) noexcept;
  std::span<const std::byte> OnResult(ByteRange range, std::span<const std::byte> result,
                                      bool keep) noexcept;

 private:
  struct OutFlow {
    std::int32_t node;
    std::uint32_t sent;
    std::uint32_t granted;
    std::uint32_t outstanding;
  };
  struct InFlow {
    std::int32_t node;
    std::uint32_t expected;
    std::uint32_t arrived;
    std::uint32_t consumed;
    std::uint32_t granted;
  };

  void OnSent(NodeIndex to) noexcept override;
  std::uint64_t order() const noexcept override { return order_; }
  CollectiveAlgorithm& Choose() noexcept;
  AllReduceAlgorithm ChooseBySize() const noexcept;
  OutFlow* FindOut(std::int32_t node) noexcept;
  InFlow* FindIn(std::int32_t node) noexcept;
  MessageHeader Header(MessageType type, std::int32_t to, std::uint32_t index) const noexcept;
  void Grant(InFlow& flow) noexcept;
  std::span<const std::byte> ReadyOrNot(const std::byte* data, ByteRange range) noexcept;
  void OfferEarly() noexcept;

  const OperationSetting& setting_;
  CollectiveRequest request_;
  InPlaceAccessor in_place_;
  BufferAccessor* accessor_ = nullptr;
  std::uint64_t order_ = 0;
  std::size_t total_bytes_ = 0;
  std::uint64_t fingerprint_ = 0;
  CollectiveTimes times_;
  CollectiveOutcome outcome_ = CollectiveOutcome::kDone;
  NodeIndex culprit_{-1};
  CollectiveAlgorithm* algorithm_ = nullptr;
  AllReduceAlgorithm chosen_ = AllReduceAlgorithm::kAuto;
  std::uint32_t outstanding_ = 0;
  bool wants_advance_ = false;
  bool waits_for_accessor_ = false;
  SendPriority priority_ = SendPriority::kBulk;
  std::vector<OutFlow> out_flows_;
  std::vector<InFlow> in_flows_;
  EarlyMessageList early_;

  Ring ring_;
  DoublingAllReduce doubling_all_reduce_;
  FlatAllReduce flat_all_reduce_;
  TreeBroadcast tree_broadcast_;
  DisseminationBarrier dissemination_barrier_;
  std::unique_ptr<LinkProbe> link_probe_;  // few operations are one
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_COLLECTIVES_OPERATION_H_
