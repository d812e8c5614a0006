// What the kernel tells of the process that serves a job.
#ifndef RINGD_CLIENT_CORE_ATTACH_ENGINE_PROCESS_H_
#define RINGD_CLIENT_CORE_ATTACH_ENGINE_PROCESS_H_

#include <sys/types.h>

#include <string>

namespace ringd::client {

// In one word or a few what the thread of an engine does that carries its job: "running",
// "sleeping", "stopped", "in an uninterruptible sleep", "dead". Empty if that can't be seen: it is
// behind a container's boundary, or has ended. Reads a few small files.
std::string DescribeEngine(pid_t pid);

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_ATTACH_ENGINE_PROCESS_H_
