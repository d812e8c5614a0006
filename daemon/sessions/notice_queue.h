// What ringd has to tell one trainer, on the way to its lifeline.
#ifndef RINGD_DAEMON_SESSIONS_NOTICE_QUEUE_H_
#define RINGD_DAEMON_SESSIONS_NOTICE_QUEUE_H_

#include <chrono>
#include <cstddef>
#include <deque>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/attach/handshake.h"
#include "proto/base/clock.h"
#include "proto/base/unique_fd.h"

namespace ringd {

// Sends frames in order and without blocking. One that the socket does not take at once waits, and
// those after it: the trainer may not have read what came before (EAGAIN), or too many descriptors
// may be on their way to processes that don't take them (ETOOMANYREFS).
//
// Thread safety: none.
// Ownership: borrows the socket; holds duplicates of the descriptors that wait.
// Invariant: frames are sent whole and in order, but for warnings, which are left out when there is
//   no room.
class NoticeQueue {
 public:
  // Text that waits, at most.
  static constexpr std::size_t kMostBytes = std::size_t{64} << 10;
  static constexpr std::size_t kMostFrames = 4096;
  // How long a descriptor may wait: its receiver is joining a job, and other ranks wait for it.
  static constexpr std::chrono::seconds kPatience{5};

  // Sends a frame or lets it wait; `fd` < 0: there is none. A peer that has gone is no error. What
  // is said after an error is dropped.
  void Send(int socket, NoticeKind kind, std::span<const std::byte> text, int fd,
            Clock::time_point now);

  // Sends what waits, as far as there is room. Idempotent.
  void Flush(int socket, Clock::time_point now);

  // The last frame: goes before those that wait and have not begun, which are dropped.
  void SendLast(int socket, NoticeKind kind, absl::string_view text);

  // True if something waits, or there is an error: then call Flush every now and then, and ask for
  // error().
  bool stirs() const noexcept { return !frames_.empty() || !error_.ok(); }
  // Why the trainer can't be told what it must know: end its session with this reason.
  const absl::Status& error() const noexcept { return error_; }

 private:
  struct Frame {
    NoticeKind kind;
    std::vector<std::byte> bytes;
    std::size_t sent = 0;
    UniqueFd fd;  // goes with the first byte
    Clock::time_point since;
  };

  // False: there is no room now.
  bool TrySend(int socket, Frame& frame, int fd);
  void Enqueue(Frame frame, int fd);
  void Drop();

  // What has been sent the trainer has, too: it could hold up who closes a socket, which is done
  // where the session is closed, and not here.
  void Keep(Frame& frame);

  std::deque<Frame> frames_;
  std::vector<UniqueFd> sent_;
  std::size_t bytes_ = 0;  // of frames_
  int last_errno_ = 0;     // why the first of them waits
  absl::Status error_;
  bool gone_ = false;  // the peer
};

// Ends a session of which nothing else has been said: its trainer hears why, and sees the hang-up.
void HangUp(int lifeline, absl::string_view why);

}  // namespace ringd

#endif  // RINGD_DAEMON_SESSIONS_NOTICE_QUEUE_H_
