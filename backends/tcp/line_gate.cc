#include "backends/tcp/line_gate.h"

#include <algorithm>
#include <utility>

namespace ringd {

void LineGate::NoteContention() noexcept {
  contended_ = true;
  calm_at_ = Clock::now() + kCalm;
}

void LineGate::SetWants(bool wants) noexcept {
  if (std::exchange(wants_, wants) == wants) return;
  if (wants) {
    turn_.Begin();
  } else {
    if (held_) Release(Clock::now());
    turn_.End();
  }
}

bool LineGate::MayBegin(Clock::time_point now) noexcept {
  if (!OthersWant()) {
    if (held_) Release(now);
    return true;
  }
  if (held_ && now < look_at_) return false;
  if (turn_.IsOwn(now) || IsBelowFloor(now)) {
    if (held_) Release(now);
    return true;
  }
  Hold(now);
  return false;
}

void LineGate::Hold(Clock::time_point now) noexcept {
  const bool moved = std::exchange(moves_, turn_.moves()) != turn_.moves();
  look_after_ = !held_ || moved ? Clock::duration(kFirstLook)
                                : std::min<Clock::duration>(2 * look_after_, kLastLook);
  look_at_ = now + look_after_;
  if (!std::exchange(held_, true)) held_since_ = now;
}

void LineGate::Release(Clock::time_point now) noexcept {
  held_ = false;
  held_before_ += now - held_since_;
}

bool LineGate::IsBelowFloor(Clock::time_point now) noexcept {
  const Clock::duration held = held_before_ + (held_ ? now - held_since_ : Clock::duration(0));
  if (held < floor_look_at_) return false;
  const std::chrono::microseconds busy = connections_.BusyTime();
  // Connections that have gone take their time with them.
  if (busy < newer_.busy) older_ = newer_ = {held, busy};
  if (held - newer_.held >= kFloorPeriod) older_ = std::exchange(newer_, {held, busy});
  const std::chrono::duration<double, Clock::period> due =
      (held - older_.held) * (kFloor * turn_.part());
  // Not soon after the beginning: who waits for its turn has had nothing yet.
  const bool below = held - older_.held >= kFloorPeriod / 2 && busy - older_.busy < due;
  // While it is below, each frame is asked for again.
  if (!below) floor_look_at_ = held + kFloorLook;
  return below;
}

bool LineGate::Tick(Clock::time_point now) noexcept {
  if (!contended_ || now < calm_at_) return false;
  contended_ = wants_ && OthersWant();
  if (contended_) calm_at_ = now + kCalm;
  return !contended_;
}

}  // namespace ringd
