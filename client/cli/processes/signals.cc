#include "client/cli/processes/signals.h"

#include <pthread.h>

#include <initializer_list>

namespace ringd::cli {
namespace {

bool IsIgnored(int signal) noexcept {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

sigset_t Interrupts() noexcept {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM}) ::sigaddset(&set, signal);
  if (!IsIgnored(SIGHUP)) ::sigaddset(&set, SIGHUP);
  return set;
}

void PrepareSignals() noexcept {
  sigset_t set = Interrupts();
  ::sigaddset(&set, SIGCHLD);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  // Else the kernel would reap what has ended.
  ::signal(SIGCHLD, SIG_DFL);
}

int PendingSignal() noexcept {
  sigset_t pending;
  ::sigpending(&pending);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    if (::sigismember(&pending, signal) == 1) return signal;
  }
  return 0;
}

}  // namespace ringd::cli
