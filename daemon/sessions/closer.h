// Gives back what the kernel holds together with a trainer, on a thread of its own.
#ifndef RINGD_DAEMON_SESSIONS_CLOSER_H_
#define RINGD_DAEMON_SESSIONS_CLOSER_H_

#include <chrono>
#include <cstddef>
#include <memory>

namespace ringd {

// What others hold, too, can make close() wait (nudges.h tells how), so what a trainer could lay
// hands on is closed here, and never on the engine. Nudged, one close takes little longer, whatever
// it is, and the next has its turn.
//
// Thread safety: any thread may call anything.
// Ownership: what was handed over. Its thread ends with it, or is left alone if it does not within
// kStopPatience.
class Closer {
 public:
  static constexpr std::chrono::milliseconds kStopPatience{1000};

  Closer();
  ~Closer();  // Stop
  Closer(const Closer&) = delete;
  Closer& operator=(const Closer&) = delete;

  // Waits until what was taken away has been destroyed, for kStopPatience at most. Idempotent; one
  // thread at a time.
  void Stop();
  // Destroys `what`, soon and elsewhere, unless somebody else holds it. Does not block. After Stop:
  // at once, and here.
  void TakeAway(std::shared_ptr<const void> what);
  // How many have not been destroyed yet.
  std::size_t backlog() const;

 private:
  struct State;
  const std::shared_ptr<State> state_;  // the thread's, too
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SESSIONS_CLOSER_H_
