// Landlock: a process without the files of its user.
#ifndef RINGD_DAEMON_ENGINE_PROCESS_FILE_WALL_H_
#define RINGD_DAEMON_ENGINE_PROCESS_FILE_WALL_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace ringd {

// From now on the calling thread, and those that it starts, open no file but these:
//
//   - to read: libraries (/usr, /lib*, LD_LIBRARY_PATH, the folders of `libraries`), what their
//     loading and looking up of names read in /etc, UCX's and the RDMA libraries' own settings,
//     /proc and /sys
//   - to write: /dev/null and its like, devices of GPUs and RDMA that are there now, /dev/shm, what
//     is in the folder CUDA_MPS_PIPE_DIRECTORY, and the names of the own threads
//
// So it neither reads cluster_key_file nor writes into state_dir. Descriptors that are open stay as
// they are. It can't look into other processes (ptrace, /proc/PID/mem, exit codes), and from Linux
// 6.12 on it signals none.
//
// Requirement: PR_SET_NO_NEW_PRIVS. Any thread; does not block.
//   kUnimplemented: the kernel has no Landlock (Linux 5.13), or it is switched off.
//   Otherwise what the kernel says.
absl::Status PutUpFileWall(const std::vector<std::string>& libraries = {});

}  // namespace ringd

#endif  // RINGD_DAEMON_ENGINE_PROCESS_FILE_WALL_H_
