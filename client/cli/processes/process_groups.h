// Which process groups still have processes.
#ifndef RINGD_CLIENT_CLI_PROCESSES_PROCESS_GROUPS_H_
#define RINGD_CLIENT_CLI_PROCESSES_PROCESS_GROUPS_H_

#include <sys/types.h>

#include <set>

namespace ringd::cli {

// Whether a process of one of these groups is alive, and not because it ignores `signal`. One that
// has ended and waits to be reaped is not. Reads all of /proc.
bool AnyAlive(const std::set<pid_t>& groups, int signal);

}  // namespace ringd::cli

#endif  // RINGD_CLIENT_CLI_PROCESSES_PROCESS_GROUPS_H_
