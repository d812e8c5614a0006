#include "backends/collectives/wire_communicator.h"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/collectives/wire_spec.h"

namespace ringd {
namespace {

static_assert(kMaxChunkBytes == kMaxPayloadBytes, "a chunk is one message");

AlgorithmOptions Normalised(AlgorithmOptions options) {
  options.chunk_bytes = ChunkBytesOf(options);
  // Small all-reduces are one message. A flat one has at least two senders.
  options.flat_all_reduce_bytes =
      std::min<std::uint64_t>(options.flat_all_reduce_bytes, 2 * kMaxPayloadBytes);
  options.small_all_reduce_bytes =
      std::min<std::uint64_t>(options.small_all_reduce_bytes, options.chunk_bytes);
  options.small_broadcast_bytes =
      std::min<std::uint64_t>(options.small_broadcast_bytes, options.chunk_bytes);
  return options;
}

}  // namespace

class WireCommunicator::CountingWire final : public MessageWire {
 public:
  CountingWire(MessageWire& wire, std::vector<Traffic>& traffic) : wire_(wire), traffic_(traffic) {}

  bool Send(NodeIndex to, const MessageHeader& header, std::span<const std::byte> payload,
            SendPriority priority, SendObserver* observer) noexcept override {
    Traffic& traffic = traffic_[static_cast<std::size_t>(to.value())];
    ++traffic.messages_sent;
    traffic.bytes_sent += payload.size();
    return wire_.Send(to, header, payload, priority, observer);
  }
  void Withdraw(SendObserver* observer) noexcept override { wire_.Withdraw(observer); }
  NeighbourLine DescribeLine(NodeIndex node) const override { return wire_.DescribeLine(node); }

 private:
  MessageWire& wire_;
  std::vector<Traffic>& traffic_;
};

WireCommunicator::WireCommunicator(const CommunicatorSpec& spec, std::unique_ptr<MessageWire> wire,
                                   EarlyMessagePool& pool, BusyCommunicators& busy)
    : spec_(spec),
      pool_(pool),
      busy_(busy),
      traffic_(spec.addresses.size()),
      wire_(std::move(wire)),
      counting_wire_(std::make_unique<CountingWire>(*wire_, traffic_)) {
  setting_.wire = counting_wire_.get();
  setting_.pool = &pool_;
  setting_.wire_id = spec.wire_id;
  setting_.self = spec.self;
  setting_.node_count = static_cast<std::int32_t>(spec.addresses.size());
  setting_.algorithms = Normalised(spec.algorithms);
  setting_.turn_bytes = &turn_bytes_;
}

WireCommunicator::~WireCommunicator() {
  Abort("the communicator was closed");
  if (is_busy_) busy_.Leave(*this);
  // The wire first: when it has gone no send reads a buffer or calls an operation any more.
  counting_wire_.reset();
  wire_.reset();
  for (auto& operation : operations_) operation->DropEarly();
}

bool WireCommunicator::TryPost(const CollectiveRequest& request) noexcept {
  if (active_.size() + finished_.size() - polled_ >= kMaxInFlight) return false;
  ++totals_.operations_posted;
  const auto now = CollectiveTimes::TimePoint::clock::now();
  const bool unsupported = Operation::Unsupported(request, setting_.node_count);
  if (!health_.ok() || unsupported) {
    Completion completion;
    completion.id = request.id;
    completion.outcome = health_.ok() ? CollectiveOutcome::kUnsupported : failure_outcome_;
    completion.culprit = health_.ok() ? NodeIndex(-1) : failure_culprit_;
    completion.user_data = request.user_data;
    completion.times.posted = completion.times.finished = now;
    finished_.push_back(completion);
    ++totals_.operations_failed;
    return true;
  }

  if (free_.empty()) {
    operations_.push_back(std::make_unique<Operation>(setting_));
    free_.push_back(operations_.back().get());
  }
  Operation& operation = *free_.back();
  free_.pop_back();
  turn_bytes_ = kTurnBytes;
  operation.Begin(request, totals_.operations_posted, now);
  active_.push_back(&operation);
  if (!std::exchange(is_busy_, true)) busy_.Enter(*this);
  in_flight_[request.id] = &operation;
  auto& next = next_sequence_[request.id.channel];
  if (request.id.sequence > next && !early_.empty()) {
    RetireEarlyUpTo({request.id.channel, request.id.sequence - 1});
  }
  next = std::max(next, std::uint64_t{request.id.sequence} + 1);

  if (const auto found = early_.find(request.id); found != early_.end()) {
    EarlyMessageList messages = found->second;
    early_.erase(found);
    early_count_ -= messages.size();
    early_bytes_ -= messages.taken_bytes();
    while (EarlyMessage* message = messages.PopFront()) {
      if (!operation.Deliver(message->header, message->payload())) {
        operation.Fail(CollectiveOutcome::kDisagreement, NodeIndex(message->header.source));
      }
      pool_.GiveBack(message);
    }
  }
  operation.Advance();
  CompleteIfFinished(operation);
  return true;
}

std::size_t WireCommunicator::Poll(std::span<Completion> out) noexcept {
  const std::size_t count = std::min(out.size(), finished_.size() - polled_);
  std::copy_n(finished_.begin() + static_cast<std::ptrdiff_t>(polled_), count, out.begin());
  polled_ += count;
  if (polled_ == finished_.size()) {
    finished_.clear();
    polled_ = 0;
  } else if (polled_ > kMaxInFlight / 2) {
    finished_.erase(finished_.begin(), finished_.begin() + static_cast<std::ptrdiff_t>(polled_));
    polled_ = 0;
  }
  return count;
}

void WireCommunicator::Cancel(OperationId id) noexcept {
  if (const auto found = in_flight_.find(id); found != in_flight_.end()) {
    Operation& operation = *found->second;
    in_flight_.erase(found);
    operation.Fail(CollectiveOutcome::kCancelled, NodeIndex(-1));
    CompleteIfFinished(operation);
    return;
  }
  auto& next = next_sequence_[id.channel];
  if (next > id.sequence) return;  // finished, or cancelled before
  next = std::uint64_t{id.sequence} + 1;
  RetireEarlyUpTo(id);
}

void WireCommunicator::Abort(absl::string_view reason) noexcept {
  FailAll(CollectiveOutcome::kAborted, NodeIndex(-1), absl::AbortedError(reason));
}

CommunicatorStatistics WireCommunicator::Statistics() const {
  CommunicatorStatistics statistics = totals_;
  for (std::size_t i = 0; i < traffic_.size(); ++i) {
    const Traffic& traffic = traffic_[i];
    if (traffic.messages_sent + traffic.messages_received == 0) continue;
    const NodeIndex node(static_cast<std::int32_t>(i));
    statistics.neighbours.push_back({node, wire_->DescribeLine(node), traffic.bytes_sent,
                                     traffic.bytes_received, traffic.messages_sent,
                                     traffic.messages_received});
  }
  return statistics;
}

bool WireCommunicator::IsFromPeer(const MessageHeader& header) const noexcept {
  return header.source >= 0 && header.source < setting_.node_count &&
         header.source != setting_.self.value();
}

void WireCommunicator::OnMessage(const MessageHeader& header,
                                 std::span<const std::byte> payload) noexcept {
  if (!health_.ok() || !IsFromPeer(header)) {
    ++totals_.messages_discarded;
    return;
  }
  Traffic& traffic = traffic_[static_cast<std::size_t>(header.source)];
  ++traffic.messages_received;
  traffic.bytes_received += payload.size();

  const auto found = in_flight_.find(header.operation);
  if (found == in_flight_.end()) {
    if (IsLate(header.operation)) {
      ++totals_.messages_discarded;
    } else {
      HoldEarly(header, payload);
    }
    return;
  }
  Operation& operation = *found->second;
  turn_bytes_ = kTurnBytes;
  if (!operation.Deliver(header, payload)) {
    operation.Fail(CollectiveOutcome::kDisagreement, NodeIndex(header.source));
  }
  operation.Advance();
  CompleteIfFinished(operation);
}

void WireCommunicator::OnMessageLost(const MessageHeader& header,
                                     absl::string_view reason) noexcept {
  if (IsFromPeer(header)) Lose(NodeIndex(header.source), "could not receive from ", reason);
}

void WireCommunicator::OnNodeLost(NodeIndex node, absl::string_view reason) noexcept {
  Lose(node, "lost the connection to ", reason);
}

void WireCommunicator::OnNodeUnreached(NodeIndex node, absl::string_view reason) noexcept {
  if (health_.ok()) is_unreached_ = true;
  Lose(node, "no connection for data to ", reason);
}

void WireCommunicator::Lose(NodeIndex node, absl::string_view what,
                            absl::string_view reason) noexcept {
  if (!health_.ok()) return;
  lost_node_ = node;
  FailAll(CollectiveOutcome::kPeerLost, node,
          absl::UnavailableError(absl::StrCat(
              what, NodeNameOf(spec_, static_cast<std::size_t>(node.value())), ": ", reason)));
}

void WireCommunicator::OnNodeMisbehaved(NodeIndex node, absl::string_view reason) noexcept {
  FailAll(CollectiveOutcome::kDisagreement, node,
          absl::InternalError(absl::StrCat(
              NodeNameOf(spec_, static_cast<std::size_t>(node.value())), " ", reason)));
}

std::size_t WireCommunicator::Advance() noexcept {
  turn_bytes_ = kTurnBytes;
  std::size_t work = 0;
  // Completing an operation moves the next one into its place.
  for (std::size_t i = 0; i < active_.size();) {
    Operation& operation = *active_[i];
    if (operation.wants_advance()) ++work;
    if (operation.wants_advance() || operation.waits_for_accessor()) operation.Advance();
    if (operation.finished()) {
      ++work;
      Complete(operation);
    } else {
      ++i;
    }
  }
  return work;
}

bool WireCommunicator::HasPendingWork() const noexcept {
  return std::any_of(active_.begin(), active_.end(), [](const Operation* operation) {
    return operation->wants_advance() || operation->finished();
  });
}

bool WireCommunicator::IsLate(OperationId id) const noexcept {
  const auto found = next_sequence_.find(id.channel);
  return found != next_sequence_.end() && id.sequence < found->second;
}

std::size_t WireCommunicator::MaxEarlyBytes() const noexcept {
  const auto rounds = std::bit_width(static_cast<std::uint32_t>(setting_.node_count) - 1);
  return (std::size_t{512} << 20) + static_cast<std::size_t>(rounds) * (std::size_t{256} << 20);
}

void WireCommunicator::HoldEarly(const MessageHeader& header,
                                 std::span<const std::byte> payload) noexcept {
  if (early_count_ >= kMaxEarlyMessages || early_bytes_ >= MaxEarlyBytes()) {
    // Whoever comes next may be ahead as it may be.
    const NodeIndex source = FarthestAhead(early_count_ >= kMaxEarlyMessages);
    FailAll(CollectiveOutcome::kDisagreement, source,
            absl::InternalError(
                absl::StrCat(NodeNameOf(spec_, static_cast<std::size_t>(source.value())),
                             " sends more ahead than it may")));
    return;
  }
  ++early_count_;
  ++totals_.messages_early;
  EarlyMessage* const message = pool_.Copy(header, payload);
  early_bytes_ += message->taken_bytes;
  early_[header.operation].PushBack(message);
}

NodeIndex WireCommunicator::FarthestAhead(bool by_number) const {
  std::vector<std::size_t> held(traffic_.size());
  for (const auto& [id, messages] : early_) {
    for (const EarlyMessage* message = messages.first(); message != nullptr;
         message = message->next) {
      held[static_cast<std::size_t>(message->header.source)] +=
          by_number ? 1 : message->taken_bytes;
    }
  }
  const auto most = std::max_element(held.begin(), held.end());
  return NodeIndex(static_cast<std::int32_t>(most - held.begin()));
}

void WireCommunicator::RetireEarlyUpTo(OperationId id) noexcept {
  for (auto it = early_.begin(); it != early_.end();) {
    const bool retired = it->first.channel == id.channel && it->first.sequence <= id.sequence;
    if (retired) {
      early_count_ -= it->second.size();
      early_bytes_ -= it->second.taken_bytes();
      totals_.messages_discarded += it->second.size();
      it->second.Clear(pool_);
      early_.erase(it++);
    } else {
      ++it;
    }
  }
}

void WireCommunicator::FailAll(CollectiveOutcome outcome, NodeIndex culprit,
                               absl::Status cause) noexcept {
  if (!health_.ok()) return;
  health_ = std::move(cause);
  failure_outcome_ = outcome;
  failure_culprit_ = culprit;
  in_flight_.clear();
  for (auto& [id, messages] : early_) messages.Clear(pool_);
  early_.clear();
  early_count_ = 0;
  early_bytes_ = 0;
  for (Operation* operation : active_) {
    operation->Fail(outcome, culprit);
    operation->WithdrawSends();
  }
  // What is still being sent completes in Advance().
  for (std::size_t i = active_.size(); i-- > 0;) CompleteIfFinished(*active_[i]);
}

void WireCommunicator::CompleteIfFinished(Operation& operation) noexcept {
  if (operation.finished()) Complete(operation);
}

void WireCommunicator::Complete(Operation& operation) noexcept {
  const Completion completion = operation.MakeCompletion(CollectiveTimes::TimePoint::clock::now());
  if (completion.outcome == CollectiveOutcome::kDone) {
    ++totals_.operations_done;
    totals_.bytes_reduced += operation.total_bytes();
  } else {
    ++totals_.operations_failed;
  }
  // A failed operation may have been taken out before, and its id may not have been the last.
  if (const auto found = in_flight_.find(completion.id);
      found != in_flight_.end() && found->second == &operation) {
    in_flight_.erase(found);
  }
  operation.DropEarly();
  finished_.push_back(completion);
  active_.erase(std::find(active_.begin(), active_.end(), &operation));
  free_.push_back(&operation);
}

}  // namespace ringd
