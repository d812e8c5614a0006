// Starts a program as a child of this process.
#ifndef RINGD_DAEMON_PROCESSES_SPAWN_H_
#define RINGD_DAEMON_PROCESSES_SPAWN_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/base/unique_fd.h"

namespace ringd {

// Both ends are closed on exec; reading never waits.
struct Pipe {
  UniqueFd reader, writer;
};

// What the kernel says. Any thread; never blocks.
absl::StatusOr<Pipe> MakePipe();

// What SpawnOrder::program becomes in the child.
inline constexpr int kProgramDescriptor = 4;

struct SpawnOrder {
  // The first is the program's path, unless `program` is it.
  std::vector<std::string> arguments;
  // The program, open (O_PATH will do), whatever its path leads to meanwhile. The child has it as
  // kProgramDescriptor: a script's interpreter reads it there. -1: by its path.
  int program = -1;
  int standard_output = -1;
  int standard_error = -1;
  // Becomes the child's descriptor 3; -1: it has none.
  int descriptor_3 = -1;
  // A process group of its own, else that of this process.
  bool has_own_group = false;
};

// The child has an empty standard input, no other descriptor of this process, no signal that is
// blocked or ignored, and this process's environment but for what is between systemd and ringd.
// By posix_spawn and never by fork, so it may be called from a process with many threads and much
// memory. The caller owns the child and its descriptors stay the caller's; somebody must reap it.
//
// Any thread; waits until the kernel has loaded the program or refused.
//   kNotFound, kPermissionDenied: the program's file; the message has the path.
//   kResourceExhausted: no memory, or no more processes; the message says which.
//   kInternal: what else the kernel says.
absl::StatusOr<pid_t> Spawn(const SpawnOrder& order);

}  // namespace ringd

#endif  // RINGD_DAEMON_PROCESSES_SPAWN_H_
