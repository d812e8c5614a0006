// The signals that a run of ranks reads from descriptors.
#ifndef RINGD_CLIENT_CLI_PROCESSES_SIGNALS_H_
#define RINGD_CLIENT_CLI_PROCESSES_SIGNALS_H_

#include <csignal>

namespace ringd::cli {

// SIGINT, SIGTERM and SIGHUP, but for a SIGHUP that is ignored: who starts a program so, as nohup
// does, wants it to outlive the terminal.
sigset_t Interrupts() noexcept;

// Blocks Interrupts() and SIGCHLD in the calling thread, and ignores SIGPIPE. Must happen before
// other threads exist, which inherit it: RunRanks reads the signals from a descriptor. SIGCHLD is
// no longer ignored: without it nobody would hear how ranks end.
void PrepareSignals() noexcept;

// SIGINT, SIGTERM or SIGHUP if one of them has come since PrepareSignals and was not handled,
// else 0.
int PendingSignal() noexcept;

}  // namespace ringd::cli

#endif  // RINGD_CLIENT_CLI_PROCESSES_SIGNALS_H_
