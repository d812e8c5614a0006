// Keeps a program's signals to the program's own threads.
#ifndef RINGD_CLIENT_CORE_WAITING_SIGNALS_BLOCKED_H_
#define RINGD_CLIENT_CORE_WAITING_SIGNALS_BLOCKED_H_

#include <pthread.h>
#include <signal.h>

namespace ringd::client {

// All signals blocked in this thread for as long as it lives. A thread that is started meanwhile
// keeps them blocked. Not around a wait: Ctrl-C would come late.
class SignalsBlocked {
 public:
  SignalsBlocked() noexcept {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_WAITING_SIGNALS_BLOCKED_H_
