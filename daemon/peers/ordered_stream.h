// One end of a bidirectional gRPC stream: ordered sending from any thread, and an end that comes
// once.
#ifndef RINGD_DAEMON_PEERS_ORDERED_STREAM_H_
#define RINGD_DAEMON_PEERS_ORDERED_STREAM_H_

#include <cstddef>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "daemon/peers/outgoing_queue.h"
#include "proto/base/mutex.h"

namespace ringd {

// What the server's and the client's end have in common. `Reactor` is gRPC's ServerBidiReactor or
// ClientBidiReactor; gRPC allows one read and one write at a time, so that messages queue here.
//
// Thread safety: Send and Close from any thread; the On... reactions are gRPC's.
// Invariants:
//   1. At most one write is under way; its message is the queue's front and stays there until done.
//   2. FinishLocked() is called exactly once, when no write is under way and none will be started;
//      not at all if it was never connected.
template <typename Reactor, typename Incoming, typename Outgoing>
class OrderedStream : public Reactor {
 public:
  // Until it is `connected` gRPC knows nothing of it: see ConnectedLocked().
  OrderedStream(std::size_t max_outgoing_bytes, bool connected)
      : queue_(max_outgoing_bytes), connected_(connected) {}

  // False if that was too much, and the stream has been given up for it.
  [[nodiscard]] bool Send(Outgoing message) {
    MutexLock lock(mutex_);
    if (closing_) return true;
    if (!queue_.Push(std::move(message))) {
      reason_ = absl::ResourceExhaustedError(
          absl::StrCat("the other side did not take its messages: ", queue_.size(), " wait"));
      closed_here_ = true;
      AbandonLocked();
      CutLocked();
      return false;
    }
    if (connected_ && !writing_) StartNextWriteLocked();
    return true;
  }

  void Close(absl::Status reason) {
    MutexLock lock(mutex_);
    if (closing_) return;
    closing_ = true;
    closed_here_ = true;
    reason_ = std::move(reason);
    StartCloseTimerLocked();
    FinishIfIdleLocked();
  }

  // Ends the call at once, unless it has ended by itself.
  void Cut() {
    MutexLock lock(mutex_);
    if (!ended_) CutLocked();
  }

  void OnReadDone(bool ok) final {
    if (!ok) {
      Abandon();
      return;
    }
    if (!IsClosing()) Deliver(std::move(incoming_));
    this->StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) final {
    MutexLock lock(mutex_);
    writing_ = false;
    if (ok) {
      queue_.PopFront();
    } else {
      closing_ = true;
      queue_.Clear();
    }
    if (queue_.empty()) {
      FinishIfIdleLocked();
    } else {
      StartNextWriteLocked();
    }
  }

 protected:
  // A message has come. Called without the lock, one at a time.
  virtual void Deliver(Incoming message) = 0;
  // No further write: tell the other side.
  virtual void FinishLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;
  virtual void CutLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;
  // Arranges for Cut() after the time that an orderly end may take.
  virtual void StartCloseTimerLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;

  void BeginReading() { this->StartRead(&incoming_); }

  // The call has been started: what has waited leaves.
  void ConnectedLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    connected_ = true;
    if (!queue_.empty()) StartNextWriteLocked();
    FinishIfIdleLocked();
  }

  // The other side will read nothing more: drops what waits.
  void Abandon() {
    MutexLock lock(mutex_);
    AbandonLocked();
  }

  // Marks the call as over, so that nothing of gRPC's is touched any more.
  void MarkEnded() {
    MutexLock lock(mutex_);
    ended_ = true;
  }

  bool IsClosing() {
    MutexLock lock(mutex_);
    return closing_;
  }

  Mutex mutex_;
  bool closed_here_ ABSL_GUARDED_BY(mutex_) = false;  // then reason_ says why
  absl::Status reason_ ABSL_GUARDED_BY(mutex_);

 private:
  void AbandonLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    closing_ = true;
    if (writing_) {
      queue_.KeepOnlyFront();
    } else {
      queue_.Clear();
    }
    FinishIfIdleLocked();
  }

  void StartNextWriteLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    writing_ = true;
    this->StartWrite(&queue_.Front());
  }

  void FinishIfIdleLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!connected_ || !closing_ || writing_ || !queue_.empty() || finished_) return;
    finished_ = true;
    FinishLocked();
  }

  OutgoingQueue<Outgoing> queue_ ABSL_GUARDED_BY(mutex_);
  bool connected_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;   // nothing more is accepted by Send
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;  // FinishLocked was called
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;     // gRPC has called OnDone
  Incoming incoming_;                              // gRPC's between StartRead and OnReadDone
};

}  // namespace ringd

#endif  // RINGD_DAEMON_PEERS_ORDERED_STREAM_H_
