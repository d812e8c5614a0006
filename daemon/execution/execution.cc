#include "daemon/execution/execution.h"

#include <utility>

namespace ringd {

Execution::Execution(OperationId id, TensorList tensors, std::shared_ptr<const BucketLayout> layout,
                     BucketMemory memory, Clock::time_point now)
    : id_(id),
      tensors_(std::move(tensors)),
      layout_(std::move(layout)),
      memory_(std::move(memory)),
      started_(now) {}

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

const std::byte* Execution::Input(std::size_t begin, std::size_t end) noexcept {
  if (const std::byte* source = memory_.Source(begin, end)) return source;
  memory_.Pack(buffer_.data(), begin, end);
  return buffer_.data() + begin;
}

bool Execution::AddInput(std::size_t begin, std::size_t end, const std::byte* partial) noexcept {
  memory_.Add(buffer_.data(), begin, end, partial);
  return true;
}

const std::byte* Execution::AddLastInput(std::size_t begin, std::size_t end,
                                         const std::byte* partial) noexcept {
  return memory_.AddLast(buffer_.data(), begin, end, partial);
}

void Execution::OnCombined(std::size_t begin, std::size_t end) noexcept {
  memory_.Finish(buffer_.data(), begin, end);
}

const std::byte* Execution::OnResult(std::size_t begin, std::size_t end, const std::byte* result,
                                     bool keep) noexcept {
  return memory_.Distribute(buffer_.data(), begin, end, result, keep);
}

}  // namespace ringd
