// The local ranks' sums of an all-reduce, made ahead of the ring.
#ifndef RINGD_DAEMON_EXECUTION_LOCAL_SUMS_H_
#define RINGD_DAEMON_EXECUTION_LOCAL_SUMS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "backends/collectives/ring_layout.h"
#include "daemon/execution/bucket.h"
#include "daemon/execution/reducers.h"
#include "daemon/execution/staged_tensors.h"

namespace ringd {

// The bucket is cut in cells, which are the ring's chunks: whole what the engine will be asked for.
// A cell is summed by a reducer that claims it in time, into its place in the fusion buffer, or
// else by the engine, in the pass over memory in which it needs it. Either gives the same bits.
//
// Each cell has one atomic:
//
//     kFree ──engine──▶ kTaken                            the engine sums it itself
//       └──reducer──▶ kClaimed ──reducer──▶ kSummed       the engine takes the sum from the buffer
//                        └──engine──▶ kAwaited ──reducer──▶ kSummed, and the engine is woken
//
// A reducer that finds that a cell's sources are not in the arenas yet (StagedTensors) gives it
// back: kClaimed becomes kFree, and kAwaited kTaken. It can't look before it has claimed: the
// memory might go. Then there is nothing to claim, until the engine tells that more sources are
// there.
//
// So nobody reads the sources of a cell or writes its part of the buffer but the one who took or
// claimed it, until kSummed hands both over to the engine. The engine never waits: of a cell that
// is in the middle of being summed it says "not ready" to the backend, for the length of one
// chunk's pass.
//
// Reducers go in the order in which the ring will ask: the block that is sent first, and beside it
// the one that the neighbour sends first, then block by block as they come. They leave alone what
// the engine is about to take, as it would find that claimed.
//
// Thread safety: Take, Close and Quiet on the progress thread; Claim and Finish on any.
// Ownership: uses `memory`, `staged` and `buffer` of what is claimed and nowhere else: they must
//   live until Close() has been called and Quiet() is true. Then claims may still be tried, and
//   fail.
class LocalSums final : public ReducerWork {
 public:
  enum class Answer : std::uint8_t {
    kSummed,    // the buffer's range has the sum
    kTaken,     // nobody has summed it, nor will
    kNotReady,  // part of it is being summed: ask again
  };

  // With `first_block_only` the others are left to the engine. `staged` may be null. The layout is
  // that of the ring that will ask for the input; what its map borrows must live as `memory` does.
  LocalSums(const BucketMemory& memory, const StagedTensors* staged, std::byte* buffer,
            const RingLayout& ring, bool first_block_only, Reducers& reducers);

  // The engine needs the range's input. Unless kNotReady, that is the last time for the range. A
  // range that is no cell is never kSummed, and may be asked for as well.
  Answer Take(std::size_t begin, std::size_t end) noexcept;
  // Nothing is claimed any more.
  void Close() noexcept;
  // After Close(): nobody sums. If not, the engine is woken when that changes.
  bool Quiet() const noexcept;

  // A cell whose sources are not there is given back. If another reducer has passed it meanwhile,
  // it is the engine's.
  std::optional<std::size_t> Claim() noexcept override;
  void Finish(std::size_t cell) noexcept override;
  bool MayGrow() const noexcept override {
    return next_position_.load(std::memory_order_relaxed) < position_count_;
  }

 private:
  enum class State : std::uint8_t { kFree = 0, kTaken, kClaimed, kAwaited, kSummed };

  // The cell that reducers come to at a position; may be one that does not exist.
  struct Cell {
    std::uint32_t block;
    std::uint32_t chunk;
  };
  Cell CellAt(std::uint64_t position) const noexcept;
  std::size_t IndexOf(Cell cell) const noexcept {
    return std::size_t{cell.block} * chunks_per_block_ + cell.chunk;
  }
  Answer TakeCell(Cell cell) noexcept;
  // Of a claimed cell whose sources are not there.
  void GiveBack(std::size_t cell) noexcept;

  const BucketMemory& memory_;
  const StagedTensors* const staged_;
  std::byte* const buffer_;
  Reducers& reducers_;
  const RingLayout ring_;
  const std::uint32_t chunks_per_block_;
  const std::size_t cell_count_;
  const std::uint64_t position_count_;
  std::atomic<std::uint64_t> next_position_{0};
  std::unique_ptr<std::atomic<State>[]> states_;  // by IndexOf
  // By block: the chunks below are the engine's. Written by the engine; a hint, so in no order.
  std::unique_ptr<std::atomic<std::uint32_t>[]> engine_below_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_EXECUTION_LOCAL_SUMS_H_
