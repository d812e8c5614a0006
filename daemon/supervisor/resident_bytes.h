// How much memory a process has.
#ifndef RINGD_DAEMON_SUPERVISOR_RESIDENT_BYTES_H_
#define RINGD_DAEMON_SUPERVISOR_RESIDENT_BYTES_H_

#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace ringd {

// What the kernel counts as resident, shared memory included; 0 of a process that has gone.
inline std::uint64_t ResidentBytes(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/statm"));
  std::uint64_t total = 0;
  std::uint64_t resident = 0;
  file >> total >> resident;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace ringd

#endif  // RINGD_DAEMON_SUPERVISOR_RESIDENT_BYTES_H_
