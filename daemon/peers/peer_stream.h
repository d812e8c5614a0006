// One connection of a control stream, or one that is still to come: what waits to be sent, what has
// come in part, and whether the other side lives.
#ifndef RINGD_DAEMON_PEERS_PEER_STREAM_H_
#define RINGD_DAEMON_PEERS_PEER_STREAM_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "daemon/peers/peer_budget.h"
#include "daemon/peers/peer_frame_reader.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/base/unique_fd.h"

namespace ringd {

struct PeerStreamLimits {
  // What may wait in one stream's outgoing queue before the stream is given up.
  std::size_t max_outgoing_bytes = std::size_t{64} << 20;

  // A connection on which nothing was received for the interval is probed. It is lost if nothing
  // has come within the timeout either, and the other host has acknowledged none of what waits for
  // it. Their sum is the time in which the silent loss of a host, or of the way to it, is noticed.
  std::chrono::milliseconds keepalive_interval{1000};
  std::chrono::milliseconds keepalive_timeout{2500};
  // While the other host acknowledges, and only the process there says nothing: it is stopped, or
  // starved, and the ringd there ends it in its own time. Lost after so much silence.
  std::chrono::nanoseconds process_patience = std::chrono::seconds(35);

  // How long a closed stream may take to send what it holds, and the other side to hang up, before
  // it is cut.
  std::chrono::milliseconds close_grace{2000};
};

// Thread safety: Send, Close and the questions from any thread; the rest on the network's thread.
// Ownership: owns the connection.
class PeerStream {
 public:
  PeerStream(const PeerStreamLimits& limits, std::shared_ptr<PeerBudget> budget)
      : limits_(limits), budget_(std::move(budget)), reader_(budget_) {}
  ~PeerStream() { Disconnect(); }

  // Queues the frame; if nothing waits before it, sends as much of it as the connection takes at
  // once. Does not block. A closed stream drops it. False: that was too much; the stream has been
  // closed with kResourceExhausted, has told the other side nothing, and should be cut.
  [[nodiscard]] bool Send(std::string frame) ABSL_LOCKS_EXCLUDED(mutex_);
  // Accepts nothing more, and tells the other side behind what waits. False: it was closed before,
  // and that reason stands.
  bool Close(const absl::Status& reason) ABSL_LOCKS_EXCLUDED(mutex_);
  bool closed() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Requirement: it is closed.
  absl::Status reason() const ABSL_LOCKS_EXCLUDED(mutex_);

  // ---- the network's thread

  // `socket` is non-blocking. What has waited leaves.
  void Connect(UniqueFd socket, Clock::time_point now) ABSL_LOCKS_EXCLUDED(mutex_);
  // Closes the connection, if there is one, and drops what waits.
  void Disconnect() noexcept ABSL_LOCKS_EXCLUDED(mutex_);
  // Sends what the connection takes.
  void Flush() ABSL_LOCKS_EXCLUDED(mutex_);
  // As Send, unless something waits already: that tells the other side as much.
  void Pong() ABSL_LOCKS_EXCLUDED(mutex_);
  // -1: there is none.
  int socket() const ABSL_LOCKS_EXCLUDED(mutex_);
  // errno of a send that failed, or 0.
  int broken() const ABSL_LOCKS_EXCLUDED(mutex_);

  PeerFrameReader& reader() noexcept { return reader_; }
  void Heard(Clock::time_point now) noexcept {
    heard_ = now;
    ever_heard_ = true;
  }
  bool ever_heard() const noexcept { return ever_heard_; }
  // For so long nobody could have heard anything.
  void Forgive(Clock::duration gap) noexcept {
    heard_ += gap;
    if (pinged_.has_value()) *pinged_ += gap;
  }

  struct Look {
    // Not ok: silent for too long, or closed for long enough, and why it counts as lost.
    // kDeadlineExceeded: its host answers, the process does not.
    absl::Status over;
    Clock::time_point next = Clock::time_point::max();  // look again then
  };
  // Pings if that is due.
  Look LookAfter(Clock::time_point now) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  Look Ping(Clock::time_point now) ABSL_LOCKS_EXCLUDED(mutex_);
  void QueueLocked(std::string frame) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropLocked() noexcept ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WriteLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Of what was sent: what the other host has acknowledged.
  struct Acknowledged {
    std::uint64_t bytes = 0;
    bool all = true;
    // Nothing is on its way, since the other process has read too little: the host answers to that.
    bool window_is_closed = false;
  };
  Acknowledged LookAtAcknowledged() const ABSL_LOCKS_EXCLUDED(mutex_);

  const PeerStreamLimits limits_;
  const std::shared_ptr<PeerBudget> budget_;

  mutable Mutex mutex_;
  UniqueFd socket_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::string> queue_ ABSL_GUARDED_BY(mutex_);
  std::size_t front_sent_ ABSL_GUARDED_BY(mutex_) = 0;  // bytes of its first frame
  std::size_t queued_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t written_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // to the connection
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool said_ ABSL_GUARDED_BY(mutex_) = false;  // the end is in the queue, or has left
  absl::Status reason_ ABSL_GUARDED_BY(mutex_);
  int broken_ ABSL_GUARDED_BY(mutex_) = 0;

  // The network's thread alone.
  PeerFrameReader reader_;
  Clock::time_point heard_;
  bool ever_heard_ = false;
  std::optional<Clock::time_point> pinged_;
  std::uint64_t acknowledged_ = 0;  // bytes, when it was pinged
  std::optional<Clock::time_point> closed_since_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_PEERS_PEER_STREAM_H_
