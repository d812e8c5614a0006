// Copies large tensors of ordinary memory into the arena and out of it while ringd works on them.
#ifndef RINGD_CLIENT_CORE_TENSORS_STAGED_COPIES_H_
#define RINGD_CLIENT_CORE_TENSORS_STAGED_COPIES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "client/core/waiting/operation_queue.h"
#include "proto/base/mutex.h"
#include "proto/shm/session_segment.h"

namespace ringd::client {

// What proto/shm/staging_progress.h says, on the trainer's side: its records, and the copies
// themselves. So a tensor of 64 MiB is on the line when a sixty-fourth of it has been copied.
//
// Thread safety: any thread may call anything; of one operation one thread at a time.
// Ownership: borrows the session segment.
class StagedCopies {
 public:
  // Below this there is nothing to gain: 1 MiB takes the same time either way
  // (tests/bench/PEER_TRIALS.md).
  static constexpr std::uint64_t kLeastBytes = std::uint64_t{1} << 20;

  explicit StagedCopies(const SessionSegmentView& segment);

  // A cleared record for one operation, or kNoProgress: all are taken.
  std::uint32_t TakeRecord();
  void GiveBackRecord(std::uint32_t record);

  // The pieces of a tensor of so many bytes, in the order in which a ring needs them: of its own
  // block and of the one that it receives first in turns, then of the blocks as they come.
  static std::span<const std::uint8_t> OrderPieces(
      std::uint64_t bytes, RingPosition position,
      std::array<std::uint8_t, kMaxStagingPieces>& order);

  // Copies the source of a submitted operation, a broadcast's from the front; calls `tell` after
  // each piece.
  template <typename Tell>
  void CopyIn(const OperationEnd& end, Tell tell) {
    std::array<std::uint8_t, kMaxStagingPieces> order;
    for (const std::uint8_t piece :
         OrderPieces(BytesOf(end), PositionFor(*end.registration), order)) {
      CopyPieceIn(end, piece);
      tell();
    }
  }

  // The same orders for one tensor: that of its source, and that in which its result comes to be
  // final as far as one can tell.
  struct Orders {
    std::vector<std::uint8_t> source;
    std::vector<std::uint8_t> result;
  };
  Orders OrdersFor(const Registration& tensor) const;
  // An operation whose pieces somebody else copies: its number, and its record.
  struct InPieces {
    std::uint64_t sequence = 0;
    std::uint32_t progress = kNoProgress;
  };
  // Somebody else has copied a piece of the source.
  void TellPiece(std::uint32_t record, std::uint32_t piece);
  // Bits of pieces of the result that are final.
  std::uint64_t FinalPieces(std::uint32_t record) const noexcept;

  // Copies out the pieces of the result that are final and that were not copied yet.
  void CopyOut(OperationEnd& end);

 private:
  static std::uint64_t BytesOf(const OperationEnd& end) noexcept;
  RingPosition PositionFor(const Registration& tensor) const noexcept;
  void CopyPieceIn(const OperationEnd& end, std::uint32_t piece);

  const SessionSegmentView segment_;
  Mutex mutex_;
  // Bits of records that are in use.
  std::array<std::uint64_t, kStagingProgressCount / 64> taken_ ABSL_GUARDED_BY(mutex_) = {};
};

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_TENSORS_STAGED_COPIES_H_
