// One end of a socket pair between two processes of this node: whole frames, with descriptors.
#ifndef RINGD_PROTO_CHANNEL_CHANNEL_H_
#define RINGD_PROTO_CHANNEL_CHANNEL_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/mutex.h"
#include "proto/base/unique_fd.h"

namespace ringd {

struct ChannelFrame {
  std::string bytes;
  std::vector<UniqueFd> fds;
  // What its reader has taken for it before it came, given back when the last copy goes.
  std::shared_ptr<const void> room = nullptr;
};

struct ChannelLimits {
  std::size_t frame_bytes = std::size_t{65} << 20;  // gRPC's messages have at most 64 MiB
  // That the other side has not taken. A frame counts as kFrameBytes more, a descriptor as
  // kFdBytes.
  std::size_t queued_bytes = std::size_t{192} << 20;
  // What the other side may send.
  std::size_t incoming_frame_bytes = frame_bytes;
  bool takes_fds = true;
};

// Frames arrive whole, in order and once, or not at all: then the channel has ended. On the wire
// each is {payload's bytes, number of descriptors}, both of 32 bits in this machine's order, and
// the payload; the descriptors come with the first byte.
//
// Thread safety: Send, WaitsToSend and HasUntaken from any thread; all others on one: the owner's.
// Ownership: owns the socket, descriptors that wait to be sent, and those that have come. What it
//   has no use for any more it gives to `discard`, but what is left when it goes: closing that may
//   take as long as whoever shares it likes.
// Trust: what comes is input: a frame that is too long, or has too many descriptors, ends it.
class Channel {
 public:
  static constexpr std::size_t kMostFds = 16;  // of one frame
  // So a process's descriptors don't run out before the other side is given up.
  static constexpr std::size_t kFdBytes = std::size_t{64} << 10;
  // About what a frame takes in memory besides its bytes.
  static constexpr std::size_t kFrameBytes = 256;
  // Sent in one go, so that nobody else waits long for the channel.
  static constexpr std::size_t kFlushBytes = std::size_t{1} << 20;

  enum class Flushed {
    kAll,         // nothing waits, or the channel has ended
    kSocketFull,  // when the socket is writable again; perhaps it is: then this was kFlushBytes
    // The kernel has as many of this user's descriptors on their way as it takes (ETOOMANYREFS),
    // whatever the socket says: some time later.
    kTooManyFds,
  };
  // Closes descriptors. It must not block, nor call the channel.
  using Discard = std::function<void(std::vector<UniqueFd>)>;

  // `socket` is a connected stream socket. `on_waiting` is called, by the one who sends, when the
  // socket does not take all: call Flush when it is writable again. `discard` may be null: then
  // descriptors are closed by whoever has no use for them.
  Channel(UniqueFd socket, ChannelLimits limits, std::function<void()> on_waiting,
          Discard discard = nullptr);
  ~Channel() { Close(); }

  // Does not block: what the socket does not take waits. False: it was dropped, since the channel
  // has ended, or so much waits that the other side has to be given up. `room` is held until the
  // socket has taken the frame, or it was dropped.
  bool Send(std::string payload, std::vector<UniqueFd> fds = {},
            std::shared_ptr<const void> room = nullptr) ABSL_LOCKS_EXCLUDED(mutex_);
  // For the last look before sleeping.
  bool WaitsToSend() ABSL_LOCKS_EXCLUDED(mutex_);
  // Sends what the socket takes; when to go on with the rest.
  Flushed Flush() ABSL_LOCKS_EXCLUDED(mutex_);

  // Reads what has come, about `budget` bytes, and hands over whole frames. Not OK: the channel has
  // ended; kUnavailable: the other side has closed it, or gone. Else what it did wrong.
  absl::Status Read(std::size_t budget, const std::function<void(ChannelFrame)>& take);
  // The same in steps, for a reader who has others to read. Reads what has come, 64 KiB at most;
  // how many bytes, 0: nothing has. Errors as Read.
  absl::StatusOr<std::size_t> Receive();
  // The next frame of what was received; false: none is whole. Errors as Read.
  absl::StatusOr<bool> Take(ChannelFrame& frame);
  // How long the frame is that comes next; 0: that has not been received, or it may not be so long.
  std::size_t next_bytes() const noexcept;
  // The other side has sent what was not read, or not taken since it was. Of the moment: the reader
  // may be about to.
  bool HasUntaken() const noexcept;

  // Of memory, for what comes. The reader's.
  std::size_t kept_bytes() const noexcept { return incoming_.capacity(); }

  // What waits is dropped; the other side sees the end.
  void Close() noexcept ABSL_LOCKS_EXCLUDED(mutex_);

  // Valid as long as the channel lives.
  int socket() const noexcept { return socket_.get(); }

 private:
  struct Header {
    std::uint32_t bytes = 0;
    std::uint32_t fds = 0;
  };
  struct Outgoing {
    std::string bytes;  // header and payload
    std::vector<UniqueFd> fds;
    std::size_t sent = 0;
    std::size_t weight = 0;  // of queued_bytes_
    std::shared_ptr<const void> room;
  };

  Flushed FlushLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // kAll: this part of it has gone, or never will.
  Flushed SendSome(Outgoing& frame) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndLocked() noexcept ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Drop(std::vector<UniqueFd> fds) const;
  // Forgets what was taken, and gives back memory.
  void DropTaken();

  const UniqueFd socket_;
  const ChannelLimits limits_;
  const std::function<void()> on_waiting_;
  const Discard discard_;

  Mutex mutex_;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<Outgoing> outgoing_ ABSL_GUARDED_BY(mutex_);
  std::size_t queued_bytes_ ABSL_GUARDED_BY(mutex_) = 0;

  // The reader's.
  std::string incoming_;  // from taken_ on: not handed over
  std::size_t taken_ = 0;
  std::deque<UniqueFd> incoming_fds_;
  // There may be whole frames. Relaxed: a hint.
  std::atomic<bool> has_frames_{false};
};

}  // namespace ringd

#endif  // RINGD_PROTO_CHANNEL_CHANNEL_H_
