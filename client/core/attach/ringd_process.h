// What the kernel tells of ringd's process.
#ifndef RINGD_CLIENT_CORE_ATTACH_RINGD_PROCESS_H_
#define RINGD_CLIENT_CORE_ATTACH_RINGD_PROCESS_H_

#include <sys/types.h>

#include <string>

namespace ringd::client {

// In one word or a few what the thread does that serves all jobs: "running", "sleeping", "stopped",
// "in an uninterruptible sleep", "dead". Empty if that can't be seen: ringd is behind a container's
// boundary, or has ended. Reads a few small files.
std::string DescribeRingdProcess(pid_t pid);

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_ATTACH_RINGD_PROCESS_H_
