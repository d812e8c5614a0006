// What lets this engine's bulk go on to a line that other engine processes have a share of.
#ifndef RINGD_BACKENDS_TCP_LINE_GATE_H_
#define RINGD_BACKENDS_TCP_LINE_GATE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "backends/tcp/line_turn.h"
#include "proto/base/clock.h"

namespace ringd {

// One remote's way to a LineTurn: when to look whose turn it is, and how much an engine gets that
// is never given a turn.
//
// Nobody tells an engine that is gated when its turn comes: it looks again, at first soon, then
// less often while nothing moves.
//
// The floor. Turns go by what other processes have written, and one may lie. So whoever is gated
// has kFloor of its part all the same, in time: if of the time for which it was gated its
// connections were busy for less (the kernel's account, tcpi_busy_time), it goes on.
//
// Thread safety: the progress thread only.
// Ownership: borrows the turn.
class LineGate {
 public:
  static constexpr std::chrono::microseconds kFirstLook{50};
  static constexpr std::chrono::microseconds kLastLook{2000};
  // How long the line counts as shared after another engine has been seen to want it.
  static constexpr std::chrono::seconds kCalm{1};
  static constexpr double kFloor = 0.25;

  // What the gate asks of the remote.
  class Connections {
   public:
    // For how long there was something under way on them, or to be sent.
    virtual std::chrono::microseconds BusyTime() const noexcept = 0;

   protected:
    ~Connections() = default;
  };

  LineGate(LineTurn& turn, const Connections& connections) noexcept
      : turn_(turn), connections_(connections) {}
  LineGate(const LineGate&) = delete;
  LineGate& operator=(const LineGate&) = delete;
  ~LineGate() { SetWants(false); }

  // Whether another engine wants the line now: the only question on the way of a frame that has the
  // line to itself.
  bool OthersWant() const noexcept { return turn_.OthersWant(); }
  // Another engine has wanted it lately.
  bool is_contended() const noexcept { return contended_; }
  void NoteContention() noexcept;

  // There is something to send, or being sent.
  void SetWants(bool wants) noexcept;
  // A frame may be begun now. Requirement: SetWants(true). No need to ask if no other engine wants
  // the line and this one is not gated.
  bool MayBegin(Clock::time_point now) noexcept;
  // MayBegin() has said no.
  bool is_gated() const noexcept { return gated_; }
  // A frame is begun.
  void Charge(std::size_t bytes) noexcept { turn_.Charge(bytes); }

  // When MayBegin() is to be asked again, if it is gated.
  std::optional<Clock::time_point> look_at() const noexcept {
    return gated_ ? std::optional(look_at_) : std::nullopt;
  }
  // When Tick() has something to do.
  std::optional<Clock::time_point> deadline() const noexcept {
    return contended_ ? std::optional(calm_at_) : std::nullopt;
  }
  // True: is_contended() has become false.
  bool Tick(Clock::time_point now) noexcept;

 private:
  struct Account {
    Clock::duration gated{0};
    std::chrono::microseconds busy{0};
  };
  // The floor is looked after so often, and over one or two of these periods.
  static constexpr std::chrono::milliseconds kFloorPeriod{250};
  static constexpr std::chrono::milliseconds kFloorLook{5};

  void Hold(Clock::time_point now) noexcept;
  void Release(Clock::time_point now) noexcept;
  bool IsBelowFloor(Clock::time_point now) noexcept;

  LineTurn& turn_;
  const Connections& connections_;
  bool wants_ = false;
  bool contended_ = false;
  Clock::time_point calm_at_;

  bool gated_ = false;
  Clock::time_point gated_since_;
  Clock::time_point look_at_;
  Clock::duration look_after_ = kFirstLook;
  std::uint32_t moves_ = 0;

  Clock::duration gated_before_{0};             // in all, up to gated_since_
  Clock::duration floor_look_at_ = kFloorLook;  // of that time
  Account older_;
  Account newer_;
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_TCP_LINE_GATE_H_
