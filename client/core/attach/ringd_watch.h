// Notices a ringd that hangs while somebody waits.
#ifndef RINGD_CLIENT_CORE_ATTACH_RINGD_WATCH_H_
#define RINGD_CLIENT_CORE_ATTACH_RINGD_WATCH_H_

#include <chrono>
#include <cstdint>
#include <optional>

#include "proto/base/clock.h"

namespace ringd::client {

// Asked once a second by the thread that reads ringd's notices. ringd shows a heartbeat in the
// session's memory, at least once a second; one that stands still for kPatience says that ringd is
// stopped, hangs, or gets no processor. Times in which nobody asked count little: then this process
// was stopped, too.
//
// Thread safety: one thread at a time.
class RingdWatch {
 public:
  static constexpr std::chrono::seconds kInterval{1};
  static constexpr std::chrono::seconds kPatience{3};

  struct Sight {
    std::uint64_t heartbeat = 0;
    bool in_call = false;        // somebody waits for the answer to a call
    bool in_operation = false;   // ... for an operation
    std::uint64_t progress = 0;  // grows as operations end that need no ringd
    // After so long without progress a wait for an operation is over; 0: never.
    std::chrono::nanoseconds operation_timeout{0};
  };
  struct Verdict {
    // To be said now: not said before of this silence, and somebody has waited since the last look.
    // Who gets on without ringd waits, too, but not for long.
    bool warn = false;
    // operation_timeout has passed while ringd, which should have said so, was silent.
    bool timed_out = false;
    std::chrono::seconds silence{0};
  };
  Verdict Look(const Sight& sight, Clock::time_point now) noexcept;

 private:
  std::optional<Clock::time_point> last_look_;
  std::uint64_t heartbeat_ = 0;
  std::uint64_t progress_ = 0;
  bool in_call_ = false;
  bool in_operation_ = false;
  Clock::duration silence_{0};
  Clock::duration waited_{0};  // for an operation, in this silence, without progress
  bool warned_ = false;
};

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_ATTACH_RINGD_WATCH_H_
