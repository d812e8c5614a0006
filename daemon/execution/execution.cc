#include "daemon/execution/execution.h"

#include <thread>
#include <utility>

namespace ringd {
namespace {

// Below this the wake-up of a reducer costs more than it saves. Always the ring, whose chunks they sum.
constexpr std::size_t kSumAheadFromBytes = std::size_t{1} << 20;

}  // namespace

Execution::Execution(OperationId id, TensorList tensors, std::shared_ptr<const BucketLayout> layout,
                     BucketMemory memory, Clock::time_point now)
    : id_(id),
      tensors_(std::move(tensors)),
      layout_(std::move(layout)),
      memory_(std::move(memory)),
      started_(now) {}

Execution::~Execution() {
  WithdrawSums();
  while (!Quiet()) std::this_thread::yield();
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

void Execution::PrepareSums(Reducers& reducers, const RingPlace& place) {
  if (layout_->kind() != CollectiveKind::kAllReduce || memory_.member_count() < 2 ||
      layout_->bytes() < kSumAheadFromBytes) {
    return;
  }
  // To the sums of the other blocks something is added: what is sent of the own block is rounded alike.
  const bool own_block_only = !BucketMemory::SumsExactly(layout_->data_type());
  reducers_ = &reducers;
  sums_ = std::make_shared<LocalSums>(memory_, buffer_.data(), layout_->bytes(), place,
                                      own_block_only, reducers);
}

void Execution::OfferSums() {
  if (sums_ != nullptr) reducers_->Offer(sums_);
}

void Execution::WithdrawSums() noexcept {
  if (sums_ == nullptr) return;
  reducers_->Withdraw(*sums_);
  sums_->Close();
}

LocalSums::Answer Execution::TakeSum(std::size_t begin, std::size_t end) noexcept {
  return sums_ == nullptr ? LocalSums::Answer::kTaken : sums_->Take(begin, end);
}

const std::byte* Execution::Input(std::size_t begin, std::size_t end) noexcept {
  if (const std::byte* source = memory_.Source(begin, end)) return source;
  switch (TakeSum(begin, end)) {
    case LocalSums::Answer::kNotReady:
      return nullptr;
    case LocalSums::Answer::kSummed:
      break;
    case LocalSums::Answer::kTaken:
      memory_.Pack(buffer_.data(), begin, end);
      break;
  }
  return buffer_.data() + begin;
}

bool Execution::AddInput(std::size_t begin, std::size_t end, const std::byte* partial) noexcept {
  switch (TakeSum(begin, end)) {
    case LocalSums::Answer::kNotReady:
      return false;
    case LocalSums::Answer::kSummed:
      memory_.AddToSum(buffer_.data(), begin, end, partial);
      break;
    case LocalSums::Answer::kTaken:
      memory_.Add(buffer_.data(), begin, end, partial);
      break;
  }
  return true;
}

const std::byte* Execution::AddLastInput(std::size_t begin, std::size_t end,
                                         const std::byte* partial) noexcept {
  switch (TakeSum(begin, end)) {
    case LocalSums::Answer::kNotReady:
      return nullptr;
    case LocalSums::Answer::kSummed:
      return memory_.AddLastToSum(buffer_.data(), begin, end, partial);
    case LocalSums::Answer::kTaken:
      break;
  }
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
