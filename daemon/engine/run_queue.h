// Whether this machine has a processor to spare.
#ifndef RINGD_DAEMON_ENGINE_RUN_QUEUE_H_
#define RINGD_DAEMON_ENGINE_RUN_QUEUE_H_

#include <chrono>

#include "proto/base/clock.h"
#include "proto/base/unique_fd.h"

namespace ringd {

// How many threads run or want to, as the kernel counts them for the whole machine. Whoever spins looks at it: a yield
// hands the processor to nobody outside of one's own scheduling group (a session, a service), and so a spinner
// would take it from the trainers whose work it waits for.
//
// Thread safety: one thread. A look takes some microseconds, so that there is one per kLookInterval.
// Trust: what it reads is the kernel's; anything else counts as crowded.
class RunQueue {
 public:
  static constexpr std::chrono::microseconds kLookInterval{50};

  RunQueue();
  // Reads `path`, which looks like /proc/loadavg, of a machine of so many processors.
  RunQueue(const char* path, int processors);

  // False if the file could not be opened: then it is always crowded.
  bool is_known() const noexcept { return file_.valid(); }
  // False if a processor has nothing to do though the caller runs: the trainer that is waited for may be asleep, and
  // wants one when it comes. True also if that is unknown.
  bool IsCrowded(Clock::time_point now) noexcept;

 private:
  UniqueFd file_;
  int processors_;
  Clock::time_point next_look_;
  bool is_crowded_ = true;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_ENGINE_RUN_QUEUE_H_
