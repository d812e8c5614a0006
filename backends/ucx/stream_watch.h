// Watches the connections to one peer over TCP, and says over how many its bulk is to be spread.
#ifndef RINGD_BACKENDS_UCX_STREAM_WATCH_H_
#define RINGD_BACKENDS_UCX_STREAM_WATCH_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "backends/ucx/stream_tuner.h"
#include "backends/ucx/tcp_connections.h"
#include "proto/base/clock.h"

namespace ringd {

// What a StreamTuner does not know: UCX does not tell its sockets, so each stream's is found by
// looking where the bytes of one of its messages go.
//
// Thread safety: the progress thread only.
class StreamWatch {
 public:
  // Whose bytes go over streams [first, first + count).
  struct Bulk {
    std::size_t first = 0;
    std::size_t count = 1;
    bool shared = false;
  };

  // A message of at least kTellingBytes is about to be written to `stream`, at once: if its
  // connection is not known yet, it is looked for. Pass what this returns to End().
  std::optional<WrittenConnection> BeginWrite(std::size_t stream);
  void EndWrite(std::size_t stream, const std::optional<WrittenConnection>& look);

  // To be called when something was done: whether now a stream for bulk has nothing to send, and
  // nothing is waiting for it.
  void NoteIdle(Clock::time_point now, bool idle) noexcept {
    if (is_idle_) idle_ += now - idle_since_;
    is_idle_ = idle;
    idle_since_ = now;
  }
  // A bulk message was sent.
  void NoteBulk() noexcept { any_bulk_ = true; }

  // To be called every StreamTuner::kLookInterval, as long as there is something to do, after
  // NoteIdle(). True: a trial has ended.
  bool Look(Clock::time_point now, const Bulk& bulk) noexcept;

  // There can't be so many connections.
  void GiveUpTrial() noexcept { tuner_.GiveUpTrial(); }

  std::size_t connections() const noexcept {
    return static_cast<std::size_t>(tuner_.connections());
  }
  // Why so many; for people.
  std::string Reason() const;
  // What the last trial had for a result, as a line of a log.
  std::string DescribeTrial() const;

  static constexpr std::size_t kTellingBytes = 32 * 1024;

 private:
  // Nothing if one of them is not known.
  std::optional<StreamLook> ReadCounters(const Bulk& bulk) noexcept;

  StreamTuner tuner_;
  std::vector<TcpSocket> sockets_;  // by stream
  Clock::time_point seek_at_;
  Clock::duration seek_pause_{};
  bool is_idle_ = true;
  Clock::time_point idle_since_;
  Clock::duration idle_{};  // since the last look
  Clock::time_point last_look_;
  bool any_bulk_ = false;
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_UCX_STREAM_WATCH_H_
