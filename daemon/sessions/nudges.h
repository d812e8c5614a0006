// Signals that end what a system call of this thread waits for.
#ifndef RINGD_DAEMON_SESSIONS_NUDGES_H_
#define RINGD_DAEMON_SESSIONS_NUDGES_H_

#include <time.h>  // NOLINT(modernize-deprecated-headers): <ctime> has no timer_t

#include <chrono>

namespace ringd {

// For threads that close what a trainer had, or could have sent. Closing a TCP socket lingers for
// as long as the option says, which a trainer may have set on a socket that he shared; and a Unix
// socket's last close, or a read without room for descriptors, closes the descriptors that were
// sent through it. Such a wait ends at a signal, and then so do all others of that call.
//
// Thread safety: make and use it on the thread that it is for.
class Nudges {
 public:
  static constexpr std::chrono::milliseconds kInterval{10};

  // Without (the user's limit of signals is reached) such a wait may last, and only that.
  Nudges();
  ~Nudges();
  Nudges(const Nudges&) = delete;
  Nudges& operator=(const Nudges&) = delete;

  // While they are on the thread's calls may end with EINTR.
  void Set(bool on) noexcept;

 private:
  timer_t timer_{};
  bool made_ = false;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SESSIONS_NUDGES_H_
