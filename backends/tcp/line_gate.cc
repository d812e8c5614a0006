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
    if (gated_) Release(Clock::now());
    turn_.End();
  }
}

bool LineGate::MayBegin(Clock::time_point now) noexcept {
  if (!OthersWant()) {
    if (gated_) Release(now);
    return true;
  }
  if (gated_ && now < look_at_) return false;
  if (turn_.IsOwn(now) || IsBelowFloor(now)) {
    if (gated_) Release(now);
    return true;
  }
  Hold(now);
  return false;
}

void LineGate::Hold(Clock::time_point now) noexcept {
  const bool moved = std::exchange(moves_, turn_.moves()) != turn_.moves();
  look_after_ = !gated_ || moved ? Clock::duration(kFirstLook)
                                 : std::min<Clock::duration>(2 * look_after_, kLastLook);
  look_at_ = now + look_after_;
  if (!std::exchange(gated_, true)) gated_since_ = now;
}

void LineGate::Release(Clock::time_point now) noexcept {
  gated_ = false;
  gated_before_ += now - gated_since_;
}

bool LineGate::IsBelowFloor(Clock::time_point now) noexcept {
  const Clock::duration gated = gated_before_ + (gated_ ? now - gated_since_ : Clock::duration(0));
  if (gated < floor_look_at_) return false;
  const std::chrono::microseconds busy = connections_.BusyTime();
  // Connections that have gone take their time with them.
  if (busy < newer_.busy) older_ = newer_ = {gated, busy};
  if (gated - newer_.gated >= kFloorPeriod) older_ = std::exchange(newer_, {gated, busy});
  const std::chrono::duration<double, Clock::period> due =
      (gated - older_.gated) * (kFloor * turn_.part());
  // Not soon after the beginning: who waits for its turn has had nothing yet.
  const bool below = gated - older_.gated >= kFloorPeriod / 2 && busy - older_.busy < due;
  // While it is below, each frame is asked for again.
  if (!below) floor_look_at_ = gated + kFloorLook;
  return below;
}

bool LineGate::Tick(Clock::time_point now) noexcept {
  if (!contended_ || now < calm_at_) return false;
  contended_ = wants_ && OthersWant();
  if (contended_) calm_at_ = now + kCalm;
  return !contended_;
}

}  // namespace ringd
