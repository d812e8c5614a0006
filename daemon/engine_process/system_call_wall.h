// A filter of system calls: a process without children, that looks into no other.
#ifndef RINGD_DAEMON_ENGINE_PROCESS_SYSTEM_CALL_WALL_H_
#define RINGD_DAEMON_ENGINE_PROCESS_SYSTEM_CALL_WALL_H_

#include "absl/status/status.h"

namespace ringd {

// From now on the calling thread, and those that it starts, get EPERM for what
//
//   - starts a program or a process; threads are as ever. So whoever connects to ringd's socket
//     from in here is known by this process's pid.
//   - reads or writes another process's memory, or takes descriptors out of it
//   - signals another process. Asking by a pidfd and signal 0 whether one is there is allowed.
//   - has the kernel signal one, as the owner of a descriptor (F_SETOWN, F_SETSIG and the like), or
//     outlives ringd (PR_SET_PDEATHSIG)
//   - sets limits, scheduling or priority of another process. Of another thread too: setpriority
//     and sched_setaffinity are left undone there, and say that they were done.
//   - enters or makes namespaces, and goes round this filter (io_uring)
//
// Requirement: PR_SET_NO_NEW_PRIVS. Any thread; does not block.
//   kUnimplemented: the kernel, or this kind of machine, has no such filter.
//   Otherwise what the kernel says.
absl::Status PutUpSystemCallWall();

}  // namespace ringd

#endif  // RINGD_DAEMON_ENGINE_PROCESS_SYSTEM_CALL_WALL_H_
