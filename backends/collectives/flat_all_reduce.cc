#include "backends/collectives/flat_all_reduce.h"

#include <cstring>

#include "backends/collectives/operation.h"
#include "proto/reduce/reduce.h"

namespace ringd {

void FlatAllReduce::Begin(Operation& operation) {
  operation_ = &operation;
  const std::int32_t node_count = operation.node_count();
  hub_ = static_cast<std::int32_t>(operation.request().id.channel %
                                   static_cast<std::uint32_t>(node_count));
  stage_ = Stage::kWaitsForInput;
  input_ = {};
  // One message each way: no credit is needed.
  if (!is_hub()) {
    operation.SendsTo(hub_, 1);
    operation.ReceivesFrom(hub_, 1, 1);
    return;
  }
  for (std::int32_t node = 0; node < node_count; ++node) {
    if (node == hub_) continue;
    operation.SendsTo(node, 1);
    operation.ReceivesFrom(node, 1, 1);
  }
  const auto count = static_cast<std::size_t>(node_count);
  missing_ = node_count - 1;
  seen_.assign(count, false);
  inputs_.resize(missing_ == 0 ? 0 : count * operation.total_bytes());
  sources_.resize(count);
}

bool FlatAllReduce::Advance() noexcept {
  const ByteRange all{0, operation_->total_bytes()};
  if (stage_ == Stage::kWaitsForInput) {
    if (!all.empty()) {
      input_ = operation_->Input(all);
      if (input_.empty()) return false;
    }
    if (is_hub()) {
      stage_ = Stage::kAwaitsInputs;
    } else {
      operation_->Send(hub_, kInputIndex, input_);
      stage_ = Stage::kAwaitsResult;
    }
  }
  if (stage_ == Stage::kAwaitsInputs && missing_ == 0) {
    if (!all.empty()) CombineInputs();
    for (std::int32_t node = 0; node < operation_->node_count(); ++node) {
      if (node != hub_) operation_->Send(node, kResultIndex, operation_->at(all));
    }
    stage_ = Stage::kComplete;
  }
  return false;
}

MessageVerdict FlatAllReduce::OnMessage(NodeIndex from, std::uint32_t index,
                                        std::span<const std::byte> payload) noexcept {
  if (payload.size() != operation_->total_bytes()) return MessageVerdict::kInvalid;
  if (is_hub()) {
    if (index != kInputIndex) return MessageVerdict::kInvalid;
    return TakeInput(from.value(), payload);
  }
  if (index != kResultIndex || from.value() != hub_) return MessageVerdict::kInvalid;
  // What is still being sent must not change.
  if (stage_ != Stage::kAwaitsResult || operation_->sends_in_progress() > 0) {
    return MessageVerdict::kNotYet;
  }
  if (!payload.empty()) operation_->OnResult({0, payload.size()}, payload, false);
  stage_ = Stage::kComplete;
  return MessageVerdict::kConsumed;
}

MessageVerdict FlatAllReduce::TakeInput(std::int32_t from,
                                        std::span<const std::byte> payload) noexcept {
  const auto node = static_cast<std::size_t>(from);
  if (seen_[node]) return MessageVerdict::kInvalid;
  seen_[node] = true;
  --missing_;
  if (!payload.empty()) {
    std::memcpy(inputs_.data() + node * payload.size(), payload.data(), payload.size());
  }
  if (missing_ == 0) Advance();
  return MessageVerdict::kConsumed;
}

void FlatAllReduce::CombineInputs() noexcept {
  const std::size_t bytes = operation_->total_bytes();
  for (std::size_t node = 0; node < sources_.size(); ++node) {
    const bool own = static_cast<std::int32_t>(node) == hub_;
    sources_[node] = own ? input_.data() : inputs_.data() + node * bytes;
  }
  const CollectiveRequest& request = operation_->request();
  ReduceMany(request.data_type, request.op, sources_, operation_->at(0), request.element_count,
             Streaming::kCached);
  operation_->OnCombined({0, bytes});
}

bool FlatAllReduce::is_hub() const noexcept { return operation_->self() == hub_; }

}  // namespace ringd
