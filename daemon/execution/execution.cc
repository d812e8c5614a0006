#include "daemon/execution/execution.h"

#include <algorithm>
#include <utility>

namespace ringd {
namespace {

constexpr std::size_t kLocalSliceBytes = std::size_t{1} << 20;
// Packed as one piece: fits the second-level cache, from which the wire takes it soon after.
constexpr std::size_t kPackBlockBytes = std::size_t{64} << 10;

}  // namespace

Execution::Execution(OperationId id, TensorList tensors, std::shared_ptr<const BucketLayout> layout,
                     BucketMemory memory, Clock::time_point now)
    : id_(id),
      tensors_(std::move(tensors)),
      layout_(std::move(layout)),
      memory_(std::move(memory)),
      started_(now) {}

bool Execution::AdvanceLocal() noexcept {
  const std::size_t end = std::min(layout_->bytes(), local_done_ + kLocalSliceBytes);
  if (local_done_ < end) memory_.Direct(local_done_, end);
  local_done_ = end;
  return local_done_ == layout_->bytes();
}

void Execution::UseBuffer(PooledBuffer buffer) noexcept {
  buffer_ = std::move(buffer);
  packed_.assign((layout_->bytes() + kPackBlockBytes - 1) / kPackBlockBytes, false);
}

CollectiveRequest Execution::Request(NodeIndex root) noexcept {
  CollectiveRequest request;
  request.id = id_;
  request.kind = layout_->kind();
  request.data_type = layout_->data_type();
  request.op = layout_->op();
  request.element_count = layout_->bytes() / SizeOf(layout_->data_type());
  request.root = root;
  request.buffer = buffer_.data();
  request.stages = this;
  return request;
}

bool Execution::IsReady(std::size_t begin, std::size_t end) noexcept {
  if (begin >= end) return true;
  for (std::size_t block = begin / kPackBlockBytes; block <= (end - 1) / kPackBlockBytes; ++block) {
    if (packed_[block]) continue;
    memory_.Pack(buffer_.data(), block * kPackBlockBytes,
                 std::min(layout_->bytes(), (block + 1) * kPackBlockBytes));
    packed_[block] = true;
  }
  return true;
}

void Execution::OnFinal(std::size_t begin, std::size_t end) noexcept {
  memory_.Unpack(buffer_.data(), begin, end);
}

}  // namespace ringd
