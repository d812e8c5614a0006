// The kernel's line about a process or a thread, /proc/PID/stat; see proc(5).
#ifndef RINGD_PROTO_BASE_PROC_STAT_H_
#define RINGD_PROTO_BASE_PROC_STAT_H_

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <vector>

namespace ringd {

// Where in ReadProcStat's result these are.
inline constexpr std::size_t kProcStatState = 0;  // field 3 of proc(5)
inline constexpr std::size_t kProcStatParent = 4 - 3;
inline constexpr std::size_t kProcStatUserTime = 14 - 3;  // in ticks, as the next one
inline constexpr std::size_t kProcStatSystemTime = 15 - 3;
inline constexpr std::size_t kProcStatThreads = 20 - 3;
inline constexpr std::size_t kProcStatExitCode = 52 - 3;

// The fields from the state on, or none if they can't be read: of the file in `folder`, as
// "/proc/17" or "/proc/17/task/18".
std::vector<std::string> ReadProcStat(const std::string& folder);
// Of a process; none if `pid` can't be one's.
std::vector<std::string> ReadProcStat(pid_t pid);

// True if the process exists and is stopped (SIGSTOP, a debugger).
bool IsStopped(pid_t pid);
// True if the process exists and its main thread runs, or could if it got a processor.
bool IsRunnable(pid_t pid);

}  // namespace ringd

#endif  // RINGD_PROTO_BASE_PROC_STAT_H_
