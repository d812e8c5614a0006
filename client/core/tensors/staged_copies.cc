#include "client/core/tensors/staged_copies.h"

#include <algorithm>
#include <bit>

#include "client/core/tensors/registrations.h"
#include "proto/operations/operation_traits.h"
#include "proto/reduce/reduce.h"

namespace ringd::client {
namespace {

// From this size on tensors would only push each other out of the caches.
constexpr std::uint64_t kPastCachesFromBytes = std::uint64_t{4} << 20;

// Bits of the pieces that one of the ring's blocks lies in.
std::uint64_t PiecesOfBlock(std::uint64_t tensor_bytes, std::uint64_t blocks,
                            std::uint64_t block) noexcept {
  const std::uint64_t begin = tensor_bytes / blocks * block;
  const std::uint64_t end =
      block + 1 == blocks ? tensor_bytes : tensor_bytes / blocks * (block + 1);
  return begin == end ? 0 : StagingPieces(tensor_bytes, begin, end);
}

// One piece of it; `to` and `from` are the tensor's beginnings.
void CopyPiece(void* to, const void* from, std::uint64_t tensor_bytes, std::uint64_t index) {
  const auto [begin, bytes] = StagingPieceAt(tensor_bytes, index);
  const Streaming streaming =
      tensor_bytes >= kPastCachesFromBytes ? Streaming::kPast : Streaming::kCached;
  CopyScaled(DataType::kUint8, static_cast<std::byte*>(to) + begin,
             static_cast<const std::byte*>(from) + begin, bytes, {}, streaming);
}

}  // namespace

StagedCopies::StagedCopies(const SessionSegmentView& segment) : segment_(segment) {}

std::uint32_t StagedCopies::TakeRecord() {
  MutexLock lock(mutex_);
  for (std::size_t word = 0; word < taken_.size(); ++word) {
    const int bit = std::countr_one(taken_[word]);
    if (bit == 64) continue;
    taken_[word] |= std::uint64_t{1} << bit;
    const auto record = static_cast<std::uint32_t>(word * 64) + static_cast<std::uint32_t>(bit);
    // Relaxed: ringd looks at it after it has taken the submission that names it.
    segment_.staging_progress[record].source.store(0, std::memory_order_relaxed);
    segment_.staging_progress[record].result.store(0, std::memory_order_relaxed);
    return record;
  }
  return kNoProgress;
}

void StagedCopies::GiveBackRecord(std::uint32_t record) {
  MutexLock lock(mutex_);
  taken_[record / 64] &= ~(std::uint64_t{1} << record % 64);
}

std::uint64_t StagedCopies::BytesOf(const OperationEnd& end) noexcept {
  return end.registration->bytes;
}

RingPosition StagedCopies::PositionFor(const Registration& tensor) const noexcept {
  if (!TraitsOf(tensor.description.kind).combines) return {};
  return segment_.header->ring_position.load(std::memory_order_relaxed);
}

std::span<const std::uint8_t> StagedCopies::OrderPieces(
    std::uint64_t bytes, RingPosition position,
    std::array<std::uint8_t, kMaxStagingPieces>& order) {
  const std::uint64_t length = StagingPieceBytes(bytes);
  const auto count = static_cast<std::size_t>((bytes + length - 1) / length);
  const std::uint64_t blocks = std::max<std::uint64_t>(1, position.node_count);
  std::uint64_t left = AllStagingPieces(bytes);
  std::size_t ordered = 0;
  // The block that comes in step `step`; its pieces that were not taken, the first one first.
  const auto pieces_of = [&](std::uint64_t step) {
    const std::uint64_t block = (position.self % blocks + blocks - step % blocks) % blocks;
    return PiecesOfBlock(bytes, blocks, block) & left;
  };
  const auto take_first_of = [&](std::uint64_t pieces) {
    if (pieces == 0) return;
    const int first = std::countr_zero(pieces);
    order[ordered++] = static_cast<std::uint8_t>(first);
    left &= ~(std::uint64_t{1} << first);
  };
  while ((pieces_of(0) | pieces_of(1)) != 0) {
    take_first_of(pieces_of(0));
    take_first_of(pieces_of(1));
  }
  for (std::uint64_t step = 2; ordered < count; ++step) {
    // More blocks than bytes, or a position that makes no sense: whatever is left, from the front.
    if (step >= blocks) take_first_of(left);
    while (step < blocks && pieces_of(step) != 0) take_first_of(pieces_of(step));
  }
  return std::span(order).first(count);
}

void StagedCopies::CopyPieceIn(const OperationEnd& end, std::uint32_t piece) {
  CopyPiece(end.staged_to, end.staged_from, BytesOf(end), piece);
  TellPiece(end.progress, piece);
}

void StagedCopies::TellPiece(std::uint32_t record, std::uint32_t piece) {
  segment_.staging_progress[record].source.fetch_or(std::uint64_t{1} << piece,
                                                    std::memory_order_seq_cst);
  // After the bit: ringd looks at the bits when it has seen the count change.
  segment_.header->staged_pieces.fetch_add(1, std::memory_order_seq_cst);
}

std::uint64_t StagedCopies::FinalPieces(std::uint32_t record) const noexcept {
  return segment_.staging_progress[record].result.load(std::memory_order_acquire);
}

StagedCopies::Orders StagedCopies::OrdersFor(const Registration& tensor) const {
  const RingPosition position = PositionFor(tensor);
  std::array<std::uint8_t, kMaxStagingPieces> order;
  Orders orders;
  const auto source = OrderPieces(tensor.bytes, position, order);
  orders.source.assign(source.begin(), source.end());
  // A ring ends with the block behind a node's own, and then passes the results on: first its own,
  // then those before it. That is the order of a source of the node behind, but for its turns.
  const std::uint64_t blocks = std::max<std::uint64_t>(1, position.node_count);
  std::uint64_t left = AllStagingPieces(tensor.bytes);
  for (std::uint64_t step = 0; left != 0; ++step) {
    const std::uint64_t block = (position.self + 1 + blocks - step) % blocks;
    std::uint64_t pieces = PiecesOfBlock(tensor.bytes, blocks, block) & left;
    left &= ~pieces;
    for (; pieces != 0; pieces &= pieces - 1) {
      orders.result.push_back(static_cast<std::uint8_t>(std::countr_zero(pieces)));
    }
  }
  return orders;
}

void StagedCopies::CopyOut(OperationEnd& end) {
  const std::uint64_t final_pieces = FinalPieces(end.progress) & AllStagingPieces(BytesOf(end));
  std::uint64_t fresh = final_pieces & ~end.fetched_pieces;
  for (; fresh != 0; fresh &= fresh - 1) {
    CopyPiece(end.copy_to, end.copy_from, BytesOf(end),
              static_cast<std::uint64_t>(std::countr_zero(fresh)));
  }
  end.fetched_pieces |= final_pieces;
}

}  // namespace ringd::client
