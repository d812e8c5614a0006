// One collective under way on this node: from the local ranks' arenas over the wire and back.
#ifndef RINGD_DAEMON_EXECUTION_EXECUTION_H_
#define RINGD_DAEMON_EXECUTION_EXECUTION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "backends/collective_request.h"
#include "daemon/execution/bucket.h"
#include "daemon/execution/buffer_pool.h"
#include "daemon/execution/local_sums.h"
#include "daemon/execution/reducers.h"
#include "daemon/execution/result_copies.h"
#include "daemon/execution/staged_tensors.h"
#include "daemon/schedule/node/node_scheduler.h"
#include "proto/base/clock.h"
#include "proto/types/ids.h"

namespace ringd {

// Gives the backend the ranks' input and hands them the result piece by piece when it asks, so that
// this overlaps with the transfer. Of large all-reduces of several local ranks, reducers sum the
// input ahead and copy the result behind, so that it is not with the ranks yet when the backend has
// finished: see InPlace().
//
// Thread safety: none; the progress thread drives it, and the backend calls it on that thread. What
//   reducers share with it is in LocalSums and ResultCopies.
// Ownership: holds the fusion buffer; the arenas belong to the sessions, which the communicator
//   keeps alive as long as this object is.
// Invariant: no byte of an input changes before every node has contributed. So an operation that
//   some node never started can be cancelled, with its inputs intact. They may still be read, by a
//   send that had begun: what it carries is of an operation that nobody finishes. Of a destination
//   that is combined no byte changes before either; of an all-gather a rank's own part may.
class Execution final : public BufferAccessor {
 public:
  Execution(OperationId id, TensorList tensors, std::shared_ptr<const BucketLayout> layout,
            BucketMemory memory, const std::vector<StagedBuffer>& staged, Clock::time_point now);
  // Waits for reducers unless Quiet(): for the length of one piece's pass.
  ~Execution() override;
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;

  OperationId id() const noexcept { return id_; }
  const TensorList& tensors() const noexcept { return tensors_; }
  const BucketLayout& layout() const noexcept { return *layout_; }
  Clock::time_point started() const noexcept { return started_; }

  // Takes the buffer for the wire; requires its size to be layout().bytes().
  void UseBuffer(PooledBuffer buffer) noexcept { buffer_ = std::move(buffer); }
  CollectiveRequest Request(NodeIndex root) noexcept;

  // Lets reducers sum ahead and copy behind, if that pays and bits don't depend on it. With the
  // buffer and before the request is posted. `reducers` must live longer.
  void PrepareWork(Reducers& reducers, const RingPlace& place);
  // They may begin. Once it has been posted.
  void OfferWork();
  // They begin nothing more, and what they have not begun is not done. When it is cancelled or has
  // failed.
  void WithdrawWork() noexcept;
  // No reducer touches its memory: always so when its results are in place, soon when it is
  // withdrawn.
  bool Quiet() const noexcept;

  // Copies a piece of the result to ranks, if there is one that no reducer has begun; else false.
  bool CopyPiece() noexcept { return copies_ != nullptr && copies_->CopyOne(); }
  // Once the backend has completed it well: the ranks have the result. If not, CopyPiece() has
  // something to do, or reducers wake the engine when that may have changed.
  bool InPlace() noexcept { return copies_ == nullptr || copies_->Done(); }

  const std::byte* Input(std::size_t begin, std::size_t end) noexcept override;
  bool AddInput(std::size_t begin, std::size_t end, const std::byte* partial) noexcept override;
  const std::byte* AddLastInput(std::size_t begin, std::size_t end,
                                const std::byte* partial) noexcept override;
  void OnCombined(std::size_t begin, std::size_t end) noexcept override;
  const std::byte* OnResult(std::size_t begin, std::size_t end, const std::byte* result,
                            bool keep) noexcept override;

 private:
  // False: some rank has not copied its part of the range yet. The engine hears when it has.
  bool SourcesReady(std::size_t begin, std::size_t end) const noexcept {
    return staged_ == nullptr || staged_->SourcesReady(begin, end);
  }
  // All ranks have the range's result.
  void NoteResults(std::size_t begin, std::size_t end) noexcept {
    if (staged_ != nullptr) staged_->NoteResults(begin, end, 0, memory_.member_count());
  }
  LocalSums::Answer TakeSum(std::size_t begin, std::size_t end) noexcept;
  // The range's result may be left in one place, to be copied behind.
  bool CopiesBehind(std::size_t begin, std::size_t end) const noexcept;

  OperationId id_;
  TensorList tensors_;
  std::shared_ptr<const BucketLayout> layout_;
  BucketMemory memory_;
  Clock::time_point started_;
  PooledBuffer buffer_;
  const std::unique_ptr<StagedTensors> staged_;  // null: no tensor is staged in pieces
  Reducers* reducers_ = nullptr;
  std::shared_ptr<LocalSums> sums_;       // null: nobody sums ahead
  std::shared_ptr<ResultCopies> copies_;  // null: results are copied as they come
  std::size_t max_copied_bytes_ = 0;      // of one range
};

}  // namespace ringd

#endif  // RINGD_DAEMON_EXECUTION_EXECUTION_H_
