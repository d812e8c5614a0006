#include "daemon/execution/local_sums.h"

#include <algorithm>

namespace ringd {
namespace {

// A claimed cell is summed in less time than the engine needs for this many, sums and results.
constexpr std::uint32_t kLead = 1;

}  // namespace

LocalSums::LocalSums(const BucketMemory& memory, const StagedTensors* staged, std::byte* buffer,
                     const RingLayout& ring, bool first_block_only, Reducers& reducers)
    : memory_(memory),
      staged_(staged),
      buffer_(buffer),
      reducers_(reducers),
      ring_(ring),
      chunks_per_block_(ring.map().MaxChunkCount()),
      cell_count_(std::size_t{ring.node_count()} * chunks_per_block_),
      position_count_(first_block_only ? chunks_per_block_ : cell_count_),
      states_(std::make_unique<std::atomic<State>[]>(cell_count_)),
      engine_below_(std::make_unique<std::atomic<std::uint32_t>[]>(ring.node_count())) {}

LocalSums::Cell LocalSums::CellAt(std::uint64_t position) const noexcept {
  const bool first_block_only = position_count_ < cell_count_;
  std::uint64_t step = position / chunks_per_block_;
  std::uint64_t chunk = position % chunks_per_block_;
  // While the first block is sent, the one that is sent to us first comes in.
  if (!first_block_only && position < 2 * std::uint64_t{chunks_per_block_}) {
    step = position % 2;
    chunk = position / 2;
  }
  return {ring_.SentBlock(static_cast<std::uint32_t>(step)), static_cast<std::uint32_t>(chunk)};
}

LocalSums::Answer LocalSums::Take(std::size_t begin, std::size_t end) noexcept {
  const BlockMap& map = ring_.map();
  Answer all = Answer::kTaken;
  bool whole = false;
  for (std::size_t at = begin; at < end;) {
    const std::uint32_t block = map.BlockAt(at);
    const auto chunk =
        static_cast<std::uint32_t>((at - map.Block(block).begin) / map.chunk_bytes());
    const ByteRange range = map.Chunk(block, chunk);
    whole = range.begin == begin && range.end == end;
    const Answer answer = TakeCell({block, chunk});
    if (answer == Answer::kNotReady || whole) all = answer;
    at = range.end;
  }
  return all;
}

LocalSums::Answer LocalSums::TakeCell(Cell cell) noexcept {
  std::atomic<std::uint32_t>& below = engine_below_[cell.block];
  if (const std::uint32_t limit = cell.chunk + 1 + kLead;
      below.load(std::memory_order_relaxed) < limit) {
    below.store(limit, std::memory_order_relaxed);
  }
  std::atomic<State>& state = states_[IndexOf(cell)];
  // Acquire pairs with Finish: the sum is in the buffer, and the sources are read no more.
  State seen = state.load(std::memory_order_acquire);
  for (;;) {
    switch (seen) {
      case State::kFree:
        if (state.compare_exchange_weak(seen, State::kTaken, std::memory_order_acquire)) {
          return Answer::kTaken;
        }
        break;
      case State::kClaimed:
        if (state.compare_exchange_weak(seen, State::kAwaited, std::memory_order_acquire)) {
          return Answer::kNotReady;
        }
        break;
      case State::kAwaited:
        return Answer::kNotReady;
      case State::kSummed:
        return Answer::kSummed;
      case State::kTaken:
        return Answer::kTaken;
    }
  }
}

void LocalSums::Close() noexcept {
  // Reducers that come now find nothing; what is claimed will wake the engine.
  next_position_.store(position_count_, std::memory_order_relaxed);
  for (std::uint32_t block = 0; block < ring_.node_count(); ++block) {
    const std::uint32_t chunks = ring_.map().ChunkCount(block);
    for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) TakeCell({block, chunk});
  }
}

bool LocalSums::Quiet() const noexcept {
  // Acquire: who has seen the sum made may free what it was made of.
  return std::none_of(states_.get(), states_.get() + cell_count_,
                      [](const std::atomic<State>& state) {
                        const State seen = state.load(std::memory_order_acquire);
                        return seen == State::kClaimed || seen == State::kAwaited;
                      });
}

std::optional<std::size_t> LocalSums::Claim() noexcept {
  for (;;) {
    std::uint64_t position = next_position_.load(std::memory_order_relaxed);
    if (position >= position_count_) return std::nullopt;
    const Cell cell = CellAt(position);
    bool claimed = false;
    bool ready = true;
    if (cell.chunk < ring_.map().ChunkCount(cell.block) &&
        cell.chunk >= engine_below_[cell.block].load(std::memory_order_relaxed)) {
      State free = State::kFree;
      // Relaxed: what the engine wrote before it offered this work is visible to who was given it.
      claimed = states_[IndexOf(cell)].compare_exchange_strong(free, State::kClaimed,
                                                               std::memory_order_relaxed);
      const ByteRange range = ring_.map().Chunk(cell.block, cell.chunk);
      ready = !claimed || staged_ == nullptr || staged_->SourcesReady(range.begin, range.end);
    }
    if (!ready) {
      GiveBack(IndexOf(cell));
      return std::nullopt;
    }
    // Fails if somebody has gone on from here, since this one had the cell, or has closed.
    next_position_.compare_exchange_strong(position, position + 1, std::memory_order_relaxed);
    if (claimed) return IndexOf(cell);
  }
}

void LocalSums::GiveBack(std::size_t cell) noexcept {
  State claimed = State::kClaimed;
  if (states_[cell].compare_exchange_strong(claimed, State::kFree, std::memory_order_release)) {
    return;
  }
  // Not kFree, as after Close() nobody must claim it any more.
  states_[cell].store(State::kTaken, std::memory_order_release);
  reducers_.WakeEngine();
}

void LocalSums::Finish(std::size_t cell) noexcept {
  const auto block = static_cast<std::uint32_t>(cell / chunks_per_block_);
  const auto chunk = static_cast<std::uint32_t>(cell % chunks_per_block_);
  const ByteRange range = ring_.map().Chunk(block, chunk);
  memory_.Pack(buffer_, range.begin, range.end);
  // Where the engine sees this, it may free `memory_` and `buffer_`. Release pairs with TakeCell.
  const State before = states_[cell].exchange(State::kSummed, std::memory_order_release);
  if (before == State::kAwaited) reducers_.WakeEngine();
}

}  // namespace ringd
