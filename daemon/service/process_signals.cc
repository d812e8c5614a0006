#include "daemon/service/process_signals.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>

#include "proto/base/errno_status.h"

namespace ringd {

absl::StatusOr<ProcessSignals> ProcessSignals::Take() {
  ::signal(SIGPIPE, SIG_IGN);
  sigset_t taken;
  sigemptyset(&taken);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&taken, signal);
  if (const int error = pthread_sigmask(SIG_BLOCK, &taken, nullptr); error != 0) {
    return ErrnoStatus(error, "pthread_sigmask");
  }
  UniqueFd fd(::signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd.valid()) return ErrnoStatus(errno, "signalfd");
  return ProcessSignals(std::move(fd));
}

int ProcessSignals::Wait(std::chrono::milliseconds timeout) const {
  pollfd entry{fd_.get(), POLLIN, 0};
  if (::poll(&entry, 1, static_cast<int>(timeout.count())) <= 0) return 0;
  signalfd_siginfo info{};
  if (::read(fd_.get(), &info, sizeof(info)) != sizeof(info)) return 0;
  return static_cast<int>(info.ssi_signo);
}

}  // namespace ringd
