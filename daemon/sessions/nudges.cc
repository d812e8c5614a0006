#include "daemon/sessions/nudges.h"

#include <pthread.h>
#include <signal.h>  // NOLINT(modernize-deprecated-headers): <csignal> has no timers
#include <sys/syscall.h>
#include <unistd.h>

// glibc before 2.38 has it in the union only.
#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

namespace ringd {
namespace {

// A real-time signal that nothing else here uses. It has a handler, since what is ignored ends no
// wait.
int NudgeSignal() { return SIGRTMAX - 1; }
void OnNudge(int /*signal*/) {}

}  // namespace

Nudges::Nudges() {
  struct sigaction action {};
  action.sa_handler = OnNudge;
  ::sigaction(NudgeSignal(), &action, nullptr);
  sigset_t own;
  ::sigemptyset(&own);
  ::sigaddset(&own, NudgeSignal());
  ::pthread_sigmask(SIG_UNBLOCK, &own, nullptr);
  sigevent event{};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = NudgeSignal();
  event.sigev_notify_thread_id = static_cast<pid_t>(::syscall(SYS_gettid));
  made_ = ::timer_create(CLOCK_MONOTONIC, &event, &timer_) == 0;
}

Nudges::~Nudges() {
  if (made_) ::timer_delete(timer_);
}

void Nudges::Set(bool on) noexcept {
  if (!made_) return;
  itimerspec setting{};  // all 0 is off
  if (on) {
    setting.it_value.tv_nsec = std::chrono::nanoseconds(kInterval).count();
    setting.it_interval = setting.it_value;
  }
  ::timer_settime(timer_, 0, &setting, nullptr);
}

}  // namespace ringd
