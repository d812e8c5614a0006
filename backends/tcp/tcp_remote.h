// All lines to one other ringd, which share the way there.
#ifndef RINGD_BACKENDS_TCP_TCP_REMOTE_H_
#define RINGD_BACKENDS_TCP_TCP_REMOTE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "backends/collectives/weighted_fair_queue.h"
#include "backends/tcp/line_gate.h"
#include "backends/tcp/tcp_send.h"
#include "proto/base/clock.h"

namespace ringd {

class TcpLine;

// The bulk that waits to go to one ringd, of all communicators, and which of it goes next.
//
// Each communicator has connections of its own, and the kernel would divide the way among them as
// it likes. So while several communicators share it, one frame at a time is begun, and the next one
// only when the socket has taken the whole of it: the bytes go in the order of the queue. Little
// waits in a socket meanwhile (kSharedUnsentBytes).
//
// Other engine processes of this node may want the way, too (line_turn.h). While one does, it is
// shared as well: a frame is begun when it is this engine's turn, and this queue says which.
//
// A line whose socket takes nothing for kPatience is not slow, its other end has stopped reading,
// or its packets get lost: it is set aside until it is writable again, and the others go on.
//
// Thread safety: the progress thread only.
// Ownership: borrows lines, from Join() to Leave(); sends stay the lines'.
class TcpRemote final : private LineGate::Connections {
 public:
  // What a node that stops reading may cost the others. Longer than a slow way takes to make room
  // in a socket: 64 KiB at 10 Mbit/s.
  static constexpr std::chrono::milliseconds kPatience{50};

  // `turn`: this engine's on the way there; null: no other engine has a share of it.
  explicit TcpRemote(LineTurn* turn = nullptr);
  TcpRemote(const TcpRemote&) = delete;
  TcpRemote& operator=(const TcpRemote&) = delete;

  // A line's way in. It is set aside: it can't send yet.
  TcpFlow& Join(TcpLine& line, const LineShare& share);
  // Requirement: nothing of it waits.
  void Leave(TcpLine& line, TcpFlow& flow) noexcept;
  bool has_lines() const noexcept { return !lines_.empty(); }
  bool is_shared() const noexcept {
    return lines_.size() > 1 || (gate_.has_value() && gate_->is_contended());
  }
  // A line may begin a frame without asking for its turn.
  bool IsFree() noexcept;
  // A frame that a line has begun so fills its sockets.
  void NoteFull(TcpLine& line) noexcept {
    if (gate_.has_value()) WaitFor(&line);
  }
  // For the sockets of its lines.
  std::uint32_t unsent_bytes() const noexcept;

  void Push(TcpFlow& flow, TcpSend& send) noexcept { queue_.Push(flow, send); }
  // The line can begin a frame again.
  void Readmit(TcpFlow& flow) noexcept { queue_.Readmit(flow); }
  template <typename Predicate, typename Taken>
  void RemoveIf(TcpFlow& flow, Predicate predicate, Taken taken) noexcept {
    queue_.RemoveIf(flow, predicate, taken);
  }

  // Begins what can be begun; returns how many frames.
  std::size_t Advance() noexcept;
  // Advance() would do something now.
  bool CanAdvance() noexcept;

  // When Tick() has something to do, unless things go on by then.
  std::optional<Clock::time_point> deadline() const noexcept;
  void Tick(Clock::time_point now) noexcept;

 private:
  std::chrono::microseconds BusyTime() const noexcept override;
  bool has_several_lines() const noexcept { return lines_.size() > 1; }
  // Who goes next, if anybody may; notes for whom the others wait.
  TcpLine* FindNext() noexcept;
  void WaitFor(TcpLine* line) noexcept;
  bool IsOwnTurn() noexcept;
  bool NoticeOthers() noexcept;
  void LimitUnsentBytes() noexcept;
  std::optional<Clock::time_point> patience_end() const noexcept;

  WeightedFairQueue<TcpSend> queue_;
  std::vector<TcpLine*> lines_;
  std::optional<LineGate> gate_;
  TcpLine* waits_for_ = nullptr;  // until its socket has taken the frame that was begun
  Clock::time_point waits_since_;
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_TCP_TCP_REMOTE_H_
