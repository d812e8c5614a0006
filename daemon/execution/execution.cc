#include "daemon/execution/execution.h"

#include <cstring>
#include <thread>
#include <utility>

namespace ringd {
namespace {

// Below this the wake-up of a reducer costs more than it saves. Always the ring, whose chunks they
// sum.
constexpr std::size_t kSumAheadFromBytes = std::size_t{1} << 20;
// The same of what is copied, to all ranks together. Less than that the ranks want to find in the
// caches.
constexpr std::size_t kCopyBehindFromBytes = std::size_t{4} << 20;

}  // namespace

Execution::Execution(OperationId id, TensorList tensors, std::shared_ptr<const BucketLayout> layout,
                     BucketMemory memory, const std::vector<StagedBuffer>& staged,
                     Clock::time_point now)
    : id_(id),
      tensors_(std::move(tensors)),
      layout_(std::move(layout)),
      memory_(std::move(memory)),
      started_(now),
      staged_(staged.empty() ? nullptr : std::make_unique<StagedTensors>(*layout_, staged)) {}

Execution::~Execution() {
  WithdrawWork();
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
  request.blocks = layout_->blocks();
  request.buffer = buffer_.data();
  request.accessor = this;
  return request;
}

void Execution::PrepareWork(Reducers& reducers, const RingPlace& place) {
  const std::size_t bytes = layout_->bytes();
  if (!layout_->traits().combines || memory_.member_count() < 2 || bytes < kSumAheadFromBytes) {
    return;
  }
  // To the sums of the other blocks something is added: what is sent of the first block is rounded
  // alike.
  const bool first_block_only = !BucketMemory::SumsExactly(layout_->data_type());
  const RingLayout ring = RingLayoutOf(Request(NodeIndex(0)), place);
  reducers_ = &reducers;
  sums_ = std::make_shared<LocalSums>(memory_, staged_.get(), buffer_.data(), ring,
                                      first_block_only, reducers);
  // Of a part there is one copy, which the last addition makes.
  if (layout_->traits().HasParts()) return;
  if (bytes * memory_.member_count() < kCopyBehindFromBytes) return;
  max_copied_bytes_ = place.chunk_bytes;
  copies_ = std::make_shared<ResultCopies>(
      memory_, staged_.get(), buffer_.data(),
      std::size_t{ring.node_count()} * ring.map().MaxChunkCount(), reducers);
}

void Execution::OfferWork() {
  if (sums_ != nullptr) reducers_->Offer(sums_);
  if (copies_ != nullptr) reducers_->Offer(copies_);
}

void Execution::WithdrawWork() noexcept {
  if (sums_ != nullptr) {
    reducers_->Withdraw(*sums_);
    sums_->Close();
  }
  if (copies_ != nullptr) {
    reducers_->Withdraw(*copies_);
    copies_->Close();
  }
}

bool Execution::Quiet() const noexcept {
  return (sums_ == nullptr || sums_->Quiet()) && (copies_ == nullptr || copies_->Quiet());
}

bool Execution::CopiesBehind(std::size_t begin, std::size_t end) const noexcept {
  return copies_ != nullptr && end - begin <= max_copied_bytes_ && copies_->HasRoom();
}

LocalSums::Answer Execution::TakeSum(std::size_t begin, std::size_t end) noexcept {
  return sums_ == nullptr ? LocalSums::Answer::kTaken : sums_->Take(begin, end);
}

const std::byte* Execution::Input(std::size_t begin, std::size_t end) noexcept {
  if (!SourcesReady(begin, end)) return nullptr;
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
  if (!SourcesReady(begin, end)) return false;
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
  if (!SourcesReady(begin, end)) return nullptr;
  const LocalSums::Answer answer = TakeSum(begin, end);
  if (answer == LocalSums::Answer::kNotReady) return nullptr;
  const bool summed = answer == LocalSums::Answer::kSummed;
  std::byte* const buffer = buffer_.data();
  if (!CopiesBehind(begin, end)) {
    const std::byte* const result = summed ? memory_.AddLastToSum(buffer, begin, end, partial)
                                           : memory_.AddLast(buffer, begin, end, partial);
    NoteResults(begin, end);
    return result;
  }
  if (summed) {
    memory_.AddLastToSumInBuffer(buffer, begin, end, partial);
  } else {
    memory_.AddLastInBuffer(buffer, begin, end, partial);
  }
  copies_->Add(begin, end, ResultPlace::kBuffer);
  return buffer + begin;
}

void Execution::OnCombined(std::size_t begin, std::size_t end) noexcept {
  memory_.Finish(buffer_.data(), begin, end);
  NoteResults(begin, end);
}

const std::byte* Execution::OnResult(std::size_t begin, std::size_t end, const std::byte* result,
                                     bool keep) noexcept {
  std::byte* const buffer = buffer_.data();
  if (!CopiesBehind(begin, end)) {
    const std::byte* const kept = memory_.Distribute(buffer, begin, end, result, keep);
    NoteResults(begin, end);
    return kept;
  }
  if (keep) {
    if (result != buffer + begin) std::memcpy(buffer + begin, result, end - begin);
    copies_->Add(begin, end, ResultPlace::kBuffer);
    return buffer + begin;
  }
  // Nobody needs it in one piece, so the first copy is one of those that are to be made.
  memory_.CopyToFirstMember(begin, end, result);
  copies_->Add(begin, end, ResultPlace::kFirstMember);
  return nullptr;
}

}  // namespace ringd
