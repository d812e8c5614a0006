#include "backends/collectives/operation.h"

#include <algorithm>

#include "backends/collectives/message.h"
#include "proto/operations/operation_traits.h"

namespace ringd {
namespace {

constexpr CollectiveTimes::TimePoint kNever{};

bool NeedsBuffer(CollectiveKind kind) noexcept {
  return !IsValid(kind) || TraitsOf(kind).moves_data;  // a link probe's is not for trainers
}

// Requirement: the data type is valid.
bool SuitsAlgorithm(const CollectiveRequest& request) noexcept {
  switch (request.algorithm) {
    case AllReduceAlgorithm::kAuto:
    case AllReduceAlgorithm::kRing:
      return true;
    case AllReduceAlgorithm::kFlat:
    case AllReduceAlgorithm::kDoubling:
      return request.element_count <= kMaxPayloadBytes / SizeOf(request.data_type);
  }
  return false;
}

// The blocks are as a request's must be.
bool SuitsBlocks(const CollectiveRequest& request, std::int32_t node_count) noexcept {
  if (request.blocks.empty()) return true;
  if (!TraitsOf(request.kind).HasParts()) return false;
  if (request.blocks.size() != static_cast<std::size_t>(node_count)) return false;
  const std::size_t element = SizeOf(request.data_type);
  std::size_t behind = 0;
  for (const ByteRange& block : request.blocks) {
    if (block.begin < behind || block.end < block.begin) return false;
    if (block.begin % element != 0 || block.end % element != 0) return false;
    behind = block.end;
  }
  return behind <= request.element_count * element;
}

}  // namespace

bool Operation::Unsupported(const CollectiveRequest& request, std::int32_t node_count) noexcept {
  if (!IsValid(request.data_type) || !IsValid(request.op)) return true;
  if (request.kind == CollectiveKind::kLinkProbe) {
    return request.data_type != DataType::kFloat64 || request.buffer == nullptr ||
           request.element_count != 2 * static_cast<std::uint64_t>(node_count);
  }
  if (!IsValid(request.kind)) return true;
  if (TraitsOf(request.kind).CombinesForAll() && !SuitsAlgorithm(request)) return true;
  if (!SuitsBlocks(request, node_count)) return true;
  if (TraitsOf(request.kind).rooted &&
      (request.root.value() < 0 || request.root.value() >= node_count)) {
    return true;
  }
  return NeedsBuffer(request.kind) && request.element_count > 0 && request.buffer == nullptr;
}

void Operation::Begin(const CollectiveRequest& request, std::uint64_t order,
                      CollectiveTimes::TimePoint now) {
  request_ = request;
  order_ = order;
  in_place_ = InPlaceAccessor(request);
  accessor_ = request.accessor != nullptr ? request.accessor : &in_place_;
  total_bytes_ = NeedsBuffer(request.kind) ? request.element_count * SizeOf(request.data_type) : 0;
  fingerprint_ = Fingerprint(request);
  times_ = {};
  chosen_ = AllReduceAlgorithm::kAuto;
  times_.posted = now;
  outcome_ = CollectiveOutcome::kDone;
  culprit_ = NodeIndex(-1);
  outstanding_ = 0;
  waits_for_accessor_ = false;
  wants_advance_ = true;
  out_flows_.clear();
  in_flows_.clear();
  algorithm_ = &Choose();
  algorithm_->Begin(*this);
  for (InFlow& flow : in_flows_) Grant(flow);
}

// Every node must choose alike: only from what is equal on all of them.
CollectiveAlgorithm& Operation::Choose() noexcept {
  const AlgorithmOptions& options = setting_.algorithms;
  if (request_.kind == CollectiveKind::kLinkProbe) {
    // It shares the lines with other jobs as this one's operations will.
    priority_ = SendPriority::kBulk;
    if (link_probe_ == nullptr) link_probe_ = std::make_unique<LinkProbe>();
    return *link_probe_;
  }
  priority_ = SendPriority::kUrgent;
  if (request_.kind == CollectiveKind::kBarrier) {
    if (FlatAllReduce::SuitsNodes(setting_.node_count)) return flat_all_reduce_;
    return dissemination_barrier_;
  }
  if (request_.kind == CollectiveKind::kBroadcast) {
    const bool small = total_bytes_ <= options.small_broadcast_bytes;
    if (!small) priority_ = SendPriority::kBulk;
    tree_broadcast_.SetShape(small ? TreeBroadcast::Shape::kBinomial
                                   : TreeBroadcast::Shape::kChain);
    return tree_broadcast_;
  }
  if (TraitsOf(request_.kind).HasParts()) {
    if (total_bytes_ > options.small_all_reduce_bytes) priority_ = SendPriority::kBulk;
    return ring_;
  }
  // One node is the hub that all inputs have come to.
  AllReduceAlgorithm algorithm =
      setting_.node_count == 1 ? AllReduceAlgorithm::kFlat : request_.algorithm;
  if (algorithm == AllReduceAlgorithm::kAuto) algorithm = ChooseBySize();
  chosen_ = algorithm;
  if (algorithm == AllReduceAlgorithm::kFlat) return flat_all_reduce_;
  if (algorithm == AllReduceAlgorithm::kDoubling) return doubling_all_reduce_;
  priority_ = SendPriority::kBulk;
  return ring_;
}

AllReduceAlgorithm Operation::ChooseBySize() const noexcept {
  const AlgorithmOptions& options = setting_.algorithms;
  if (FlatAllReduce::Suits(setting_.node_count, total_bytes_, options.flat_all_reduce_bytes)) {
    return AllReduceAlgorithm::kFlat;
  }
  return total_bytes_ <= options.small_all_reduce_bytes ? AllReduceAlgorithm::kDoubling
                                                        : AllReduceAlgorithm::kRing;
}

bool Operation::Deliver(const MessageHeader& header, std::span<const std::byte> payload) noexcept {
  if (outcome_ != CollectiveOutcome::kDone) return true;
  if (header.fingerprint != fingerprint_) return false;
  if (header.type == MessageType::kGrant) {
    OutFlow* const flow = FindOut(header.source);
    if (flow == nullptr || !payload.empty()) return false;
    flow->granted = std::max(flow->granted, header.index);
    wants_advance_ = true;
    return true;
  }
  InFlow* const flow = FindIn(header.source);
  if (flow == nullptr || flow->arrived >= flow->granted) return false;
  ++flow->arrived;
  times_.last_received = CollectiveTimes::TimePoint::clock::now();
  if (times_.first_received == kNever) times_.first_received = times_.last_received;
  switch (algorithm_->OnMessage(NodeIndex(header.source), header.index, payload)) {
    case MessageVerdict::kConsumed:
      ++flow->consumed;
      Grant(*flow);
      wants_advance_ = true;
      return true;
    case MessageVerdict::kNotYet:
      early_.PushBack(setting_.pool->Copy(header, payload));
      return true;
    case MessageVerdict::kInvalid:
      break;
  }
  return false;
}

void Operation::Advance() noexcept {
  wants_advance_ = false;
  waits_for_accessor_ = false;
  if (outcome_ != CollectiveOutcome::kDone) return;
  if (algorithm_->Advance()) wants_advance_ = true;
  if (!early_.empty()) OfferEarly();
}

void Operation::OfferEarly() noexcept {
  // A message that is taken may make room for one that was refused before it, so go round until a
  // whole round changes nothing.
  bool changed = true;
  while (changed && outcome_ == CollectiveOutcome::kDone) {
    changed = false;
    for (std::size_t left = early_.size(); left > 0; --left) {
      EarlyMessage* const message = early_.PopFront();
      const MessageHeader& header = message->header;
      const MessageVerdict verdict =
          algorithm_->OnMessage(NodeIndex(header.source), header.index, message->payload());
      if (verdict == MessageVerdict::kNotYet) {
        early_.PushBack(message);
        continue;
      }
      InFlow& flow = *FindIn(header.source);
      setting_.pool->GiveBack(message);
      if (verdict == MessageVerdict::kInvalid) {
        Fail(CollectiveOutcome::kDisagreement, NodeIndex(flow.node));
        return;
      }
      ++flow.consumed;
      Grant(flow);
      changed = true;
    }
    if (changed && algorithm_->Advance()) wants_advance_ = true;
  }
}

void Operation::Fail(CollectiveOutcome outcome, NodeIndex culprit) noexcept {
  if (outcome_ == CollectiveOutcome::kDone) {
    outcome_ = outcome;
    culprit_ = culprit;
    DropEarly();
  }
  // From what waits to be sent the other node learns that they disagree.
  if (outcome != CollectiveOutcome::kDisagreement) WithdrawSends();
}

void Operation::WithdrawSends() noexcept {
  if (outstanding_ > 0) setting_.wire->Withdraw(this);
}

Completion Operation::MakeCompletion(CollectiveTimes::TimePoint now) const noexcept {
  Completion completion;
  completion.id = request_.id;
  completion.outcome = outcome_;
  completion.culprit = culprit_;
  completion.user_data = request_.user_data;
  completion.times = times_;
  completion.times.finished = now;
  completion.algorithm = chosen_;
  return completion;
}

void Operation::SendsTo(std::int32_t node, std::uint32_t initial_credit) {
  out_flows_.push_back({node, 0, initial_credit, 0});
}

void Operation::ReceivesFrom(std::int32_t node, std::uint32_t message_count,
                             std::uint32_t initial_credit) {
  in_flows_.push_back({node, message_count, 0, 0, initial_credit});
}

void Operation::Grant(InFlow& flow) noexcept {
  const std::uint32_t limit = std::min(flow.expected, flow.consumed + kGrantWindow);
  // The last messages are granted as soon as they can be, others a quarter of the window at a time.
  if (limit <= flow.granted || (limit < flow.expected && limit - flow.granted < kGrantWindow / 4)) {
    return;
  }
  flow.granted = limit;
  setting_.wire->Send(NodeIndex(flow.node), Header(MessageType::kGrant, flow.node, limit), {},
                      SendPriority::kUrgent, nullptr);
}

bool Operation::CanSend(std::int32_t node) noexcept {
  const OutFlow* const flow = FindOut(node);
  if (flow == nullptr || flow->sent >= flow->granted || flow->outstanding >= kSendWindow) {
    return false;
  }
  if (*setting_.turn_bytes > 0) return true;
  wants_advance_ = true;
  return false;
}

void Operation::Send(std::int32_t node, std::uint32_t index,
                     std::span<const std::byte> payload) noexcept {
  OutFlow& flow = *FindOut(node);
  ++flow.sent;
  *setting_.turn_bytes -= std::min(*setting_.turn_bytes, payload.size());
  times_.last_sent = CollectiveTimes::TimePoint::clock::now();
  if (times_.first_sent == kNever) times_.first_sent = times_.last_sent;
  const bool done = setting_.wire->Send(NodeIndex(node), Header(MessageType::kData, node, index),
                                        payload, priority_, this);
  if (done) return;
  ++flow.outstanding;
  ++outstanding_;
}

void Operation::OnSent(NodeIndex to) noexcept {
  --FindOut(to.value())->outstanding;
  --outstanding_;
  wants_advance_ = true;
}

std::span<const std::byte> Operation::ReadyOrNot(const std::byte* data, ByteRange range) noexcept {
  if (data == nullptr) {
    waits_for_accessor_ = true;
    return {};
  }
  return {data, range.size()};
}

std::span<const std::byte> Operation::Input(ByteRange range) noexcept {
  return ReadyOrNot(accessor_->Input(range.begin, range.end), range);
}

bool Operation::AddInput(ByteRange range, std::span<const std::byte> partial) noexcept {
  if (accessor_->AddInput(range.begin, range.end, partial.data())) return true;
  waits_for_accessor_ = true;
  return false;
}

std::span<const std::byte> Operation::AddLastInput(ByteRange range,
                                                   std::span<const std::byte> partial) noexcept {
  return ReadyOrNot(accessor_->AddLastInput(range.begin, range.end, partial.data()), range);
}

void Operation::OnCombined(ByteRange range) noexcept {
  accessor_->OnCombined(range.begin, range.end);
}

std::span<const std::byte> Operation::OnResult(ByteRange range, std::span<const std::byte> result,
                                               bool keep) noexcept {
  const std::byte* const kept = accessor_->OnResult(range.begin, range.end, result.data(), keep);
  return {kept, keep ? range.size() : 0};
}

Operation::OutFlow* Operation::FindOut(std::int32_t node) noexcept {
  for (OutFlow& flow : out_flows_) {
    if (flow.node == node) return &flow;
  }
  return nullptr;
}

Operation::InFlow* Operation::FindIn(std::int32_t node) noexcept {
  for (InFlow& flow : in_flows_) {
    if (flow.node == node) return &flow;
  }
  return nullptr;
}

MessageHeader Operation::Header(MessageType type, std::int32_t to,
                                std::uint32_t index) const noexcept {
  MessageHeader header;
  header.type = type;
  header.wire_id = setting_.wire_id;
  header.operation = request_.id;
  header.index = index;
  header.source = self();
  header.destination = to;
  header.fingerprint = fingerprint_;
  return header;
}

}  // namespace ringd
