// What a process takes of this machine.
#ifndef RINGD_DAEMON_SUPERVISOR_PROCESS_USE_H_
#define RINGD_DAEMON_SUPERVISOR_PROCESS_USE_H_

#include <sys/types.h>

#include <cstdint>

namespace ringd {

// As the kernel counts; all 0 of a process that has gone.
struct ProcessUse {
  std::uint64_t resident_bytes = 0;  // shared memory included
  std::uint64_t own_bytes = 0;       // of these, what is neither a file's nor shared
  double processor_seconds = 0;
};

// Any thread. Reads two short files that every user may read.
ProcessUse UseOf(pid_t pid);

}  // namespace ringd

#endif  // RINGD_DAEMON_SUPERVISOR_PROCESS_USE_H_
