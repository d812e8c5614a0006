// Tensors on a GPU that are reduced in the host's memory: where NCCL can't do it.
#ifndef RINGD_CLIENT_CORE_LANES_DEVICE_HOST_PATH_H_
#define RINGD_CLIENT_CORE_LANES_DEVICE_HOST_PATH_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <thread>
#include <unordered_set>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/core/attach/session_state.h"
#include "client/core/lanes/device/device_staging.h"
#include "client/core/lanes/device/exit_order.h"
#include "client/core/lanes/device/pinned_arena.h"
#include "client/core/tensors/arena.h"
#include "client/core/tensors/registrations.h"
#include "client/core/tensors/staged_copies.h"
#include "client/core/waiting/interrupt.h"
#include "client/core/waiting/operation_queue.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"

namespace ringd::client {

// An operation's way: its stream copies the source into a block of the arena, by a copy engine, and
// says so with a value. The thread "ringd-host-path" sees that, submits the block as any tensor in
// the arena, and works for it as a caller who waits does. When it has ended, the thread writes the
// value for which streams wait that are to have the result; these copy it to the GPU. No caller
// waits for a stream, nor for a rank. A large tensor that ringd carries out comes and goes in
// pieces, so that copies and line overlap.
//
// A GPU without stream memory operations has no such values. The thread asks for events then
// whether sources are there, tensors come and go as a whole, and StreamWait blocks until the result
// can be copied.
//
// Operations of one name are submitted in the order of Submit, others as their sources come.
//
// Thread safety: any thread may call anything, destruction last. A forked child must not use it,
//   nor destroy it.
// Ownership: of blocks, values and thread; borrows the arena, and what Carrier's functions use.
// Invariant: each operation ends, with the context at the latest, and its streams go on then.
class HostPath final : public OperationQueue, private EndsBeforeLibraries {
 public:
  // How this rank's operations on host memory are carried out.
  struct Carrier {
    // Does not block. The operation's number in its queue; kResourceExhausted: try again later.
    std::function<absl::StatusOr<std::uint64_t>(Registration& tensor, void* address)> submit;
    std::function<OperationQueue&(const Registration& tensor)> queue_of;
    // Of a tensor that may come in pieces: their orders; else empty ones.
    std::function<StagedCopies::Orders(const Registration& tensor)> orders_of;
    // As `submit`, of one that does. kUnavailable: not now; it is to be submitted as a whole.
    std::function<absl::StatusOr<StagedCopies::InPieces>(Registration& tensor, void* address)>
        submit_in_pieces;
    std::function<void(std::uint32_t progress, std::uint32_t piece)> tell_piece;
    // Bits of those of the result that are final.
    std::function<std::uint64_t(std::uint32_t progress)> final_pieces;
    // Of an operation that has been consumed, and had an end: how it has ended.
    std::function<absl::Status(const OperationOutcome& outcome, const OperationEnd& end)> conclude;
    // This rank's GPU has failed, or a thing that must not.
    std::function<void(const absl::Status& why)> give_up;
  };

  // As PinnedArena::Create; kResourceExhausted, too: there is no thread to give.
  static absl::StatusOr<std::unique_ptr<HostPath>> Create(std::shared_ptr<const CudaContext> gpu,
                                                          Arena& arena, const SessionState& state,
                                                          Carrier carrier);
  ~HostPath() override;
  HostPath(const HostPath&) = delete;
  HostPath& operator=(const HostPath&) = delete;

  // What ringd_submit_on_stream says, for memory outside of a slab; the operation's number.
  //   kCancelled: `is_interrupted` has said so, or the process ends.
  absl::StatusOr<std::uint64_t> Submit(Registration& tensor, const void* source, void* destination,
                                       StreamHandle stream,
                                       const InterruptCheck& is_interrupted = {})
      ABSL_LOCKS_EXCLUDED(mutex_);
  // What ringd_stream_wait says.
  //   kNotFound: there is no such operation any more.  kCancelled: as Submit.
  absl::Status StreamWait(std::uint64_t sequence, StreamHandle stream,
                          const InterruptCheck& is_interrupted = {}) ABSL_LOCKS_EXCLUDED(mutex_);

  // Blocks of operations, and results that no stream has fetched.
  DeviceStaging& staging() noexcept { return *staging_; }

  // No operation goes on, and streams that wait for one do. Blocks for some milliseconds.
  // Idempotent.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_, stop_mutex_);

  SubmitResult TrySubmit(Submission& record, const OperationEnd& end) override
      ABSL_LOCKS_EXCLUDED(mutex_);
  [[nodiscard]] bool WaitForRoom(const OperationEnd& end, Clock::time_point deadline) override
      ABSL_LOCKS_EXCLUDED(mutex_);
  WaitResult Wait(std::uint64_t sequence, Clock::time_point deadline) override
      ABSL_LOCKS_EXCLUDED(mutex_);
  WaitResult Test(std::uint64_t sequence) override ABSL_LOCKS_EXCLUDED(mutex_);
  [[nodiscard]] bool Consume(std::uint64_t sequence, OperationOutcome& outcome,
                             OperationEnd& end) override ABSL_LOCKS_EXCLUDED(mutex_);
  std::size_t ConsumeSucceeded(std::span<const std::uint64_t> sequences,
                               std::vector<OperationEnd>& ends) override
      ABSL_LOCKS_EXCLUDED(mutex_);
  const Registration* FindUsed(const std::unordered_set<const Registration*>& registrations)
      override ABSL_LOCKS_EXCLUDED(mutex_);
  void WakeAll() noexcept override ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  using Orders = StagedCopies::Orders;
  struct Operation {
    OperationEnd end;
    std::shared_ptr<const Orders> orders;  // null: it goes as a whole
    bool has_ended = false;
    bool is_certain = true;  // has_ended: somebody has said how
    absl::Status status;
  };
  // What the thread has.
  struct Item {
    std::uint64_t sequence = 0;
    OperationEnd end;
    std::shared_ptr<const Orders> orders;  // null: it goes as a whole
    std::uint64_t inner = 0;               // once submitted: its number in the queue of its lane
    std::uint32_t progress = kNoProgress;  // of one that was submitted in pieces
    std::uint32_t told = 0;                // pieces of the source
    std::uint32_t done = 0;                // and of the result
  };

  HostPath(std::shared_ptr<const CudaContext> gpu, const SessionState& state, Carrier carrier,
           std::unique_ptr<PinnedArena> memory, std::unique_ptr<DeviceStaging> staging);
  static constexpr std::uint32_t PairOf(std::uint64_t sequence) noexcept {
    return static_cast<std::uint32_t>(sequence % PinnedArena::kPairs);
  }
  // The pair of the next operation is still another one's.
  bool IsFull() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  WaitResult Look(std::uint64_t sequence) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Hands what TrySubmit has taken to the thread, once its stream says that the source is there;
  // forgets it if the stream refuses.
  absl::Status HandOver(std::uint64_t sequence, DeviceBlock* block, StreamHandle stream,
                        std::shared_ptr<const Orders> orders) ABSL_LOCKS_EXCLUDED(mutex_);
  void Withdraw(std::uint64_t sequence) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns when the operation has ended, or is not there any more.
  absl::Status AwaitEnd(std::uint64_t sequence, const InterruptCheck& is_interrupted)
      ABSL_LOCKS_EXCLUDED(mutex_);
  std::shared_ptr<const Orders> OrdersOf(const Registration& tensor) const;
  // Put on `stream`: copies of one piece after the other, with the values between them.
  absl::Status CopyPiecesIn(const Registration& tensor, const Orders& orders,
                            std::uint64_t sequence, std::uint64_t offset, DeviceAddress source,
                            StreamHandle stream) const;
  absl::Status CopyPiecesOut(const Registration& tensor, const Orders& orders,
                             std::uint64_t sequence, std::uint64_t offset,
                             DeviceAddress destination, StreamHandle stream) const;
  void EndAll() ABSL_LOCKS_EXCLUDED(mutex_);

  void EndBeforeLibraries() override { Stop(); }

  // On the thread.
  void Run();
  // False: it is to stop.
  bool TakeNew() ABSL_LOCKS_EXCLUDED(mutex_);
  // True if some have been.
  bool SubmitReady();
  bool IsSourceThere(const Item& item) const;
  absl::StatusOr<std::uint64_t> SubmitOne(Item& item);
  bool MovePieces();
  bool TakeEnded();
  void WaitForMore() ABSL_LOCKS_EXCLUDED(mutex_);
  void LookAtGpu();
  void* AddressOf(const OperationEnd& end) const noexcept;
  // `is_certain`: false if nobody has said how, and the block may still be used.
  void End(const Item& item, const absl::Status& status, bool is_certain)
      ABSL_LOCKS_EXCLUDED(mutex_);

  const std::shared_ptr<const CudaContext> gpu_;
  const SessionState& state_;
  const Carrier carrier_;
  const std::unique_ptr<PinnedArena> memory_;
  const std::unique_ptr<DeviceStaging> staging_;

  mutable Mutex mutex_;
  CondVar changed_;  // an operation has ended
  CondVar stirred_;  // the thread has something to do
  std::map<std::uint64_t, Operation> operations_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t next_sequence_ ABSL_GUARDED_BY(mutex_) = 0;
  std::list<Item> new_ ABSL_GUARDED_BY(mutex_);  // that the thread has not taken
  bool stops_ ABSL_GUARDED_BY(mutex_) = false;

  // The thread's.
  std::list<Item> copying_;
  std::list<Item> submitted_;
  std::chrono::microseconds pause_{};
  Clock::time_point gpu_seen_;

  Mutex stop_mutex_ ABSL_ACQUIRED_BEFORE(mutex_);
  std::thread thread_ ABSL_GUARDED_BY(stop_mutex_);
};

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_LANES_DEVICE_HOST_PATH_H_
