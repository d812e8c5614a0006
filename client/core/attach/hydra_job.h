// Which job of MPICH's hydra (mpiexec) a process belongs to.
//
// Hydra tells its ranks their places, and nothing that names the job. But each rank descends from a
// proxy of hydra's on its node, and the command line of that proxy says at which host and port it
// reaches its mpiexec: the same on all nodes, and another one for each mpiexec that runs.
#ifndef RINGD_CLIENT_CORE_ATTACH_HYDRA_JOB_H_
#define RINGD_CLIENT_CORE_ATTACH_HYDRA_JOB_H_

#include <sys/types.h>

#include <string>

namespace ringd::client {

// "HOST:PORT" of the mpiexec; processes that a job has spawned have "HOST:PORT.GROUP". Empty: no
// proxy that can be seen is an ancestor of `process`, as in a container with pids of its own.
// `proc_folder` is /proc, or what a test has in its place.
std::string HydraJob(pid_t process, const std::string& proc_folder);

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_ATTACH_HYDRA_JOB_H_
