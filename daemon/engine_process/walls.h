// The walls around an engine. A hostile rank writes into memory that its engine reads, and may take
// the engine over; the walls keep what is then in the engine away from ringd, from other users'
// engines and from the node's files.
#ifndef RINGD_DAEMON_ENGINE_PROCESS_WALLS_H_
#define RINGD_DAEMON_ENGINE_PROCESS_WALLS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ringd {

// Told to ringd-engine if nobody but ringd's own user and root may attach. There is nobody to be
// walled out of the files then: the trainers may read them themselves.
inline constexpr char kOneUserArgument[] = "--one-user";
// Before the path of a library that a setting names: the file wall lets its folder be read.
inline constexpr char kLibraryArgument[] = "--library";
// Before the names of the interfaces that NCCL may use, with commas in between. It is told by its
// environment, which is set before the process has threads.
inline constexpr char kNcclInterfacesArgument[] = "--nccl-interfaces";

struct WallOptions {
  // A socket pair's end; the supervisor, this process's parent, made the pair.
  int channel = 3;
  // Puts up the file wall, too. Behind it the kernel shows no process's exit code in /proc
  // (sessions/process_exit.h), not even the own user's.
  bool shut_out_files = true;
  // Paths of libraries that may be opened later.
  std::vector<std::string> libraries = {};
};

// Puts up all walls, for good:
//
//   - This process is killed when the thread of the supervisor that started it ends, so that thread
//     must last as long as the supervisor. The channel's end tells the same, but not to an engine
//     that hangs or is stopped.
//   - SIGINT, SIGTERM, SIGHUP and SIGPIPE are ignored: the supervisor says when to stop.
//   - When memory runs out, an engine goes before its supervisor.
//   - No capability is left but that of pinning memory, and none can be gained. Without the file
//     wall also that of reading how a trainer has ended (CAP_SYS_PTRACE), if ringd has it.
//   - Nobody but root reads its memory, and it leaves no core.
//   - The file wall (file_wall.h) and the system call wall (system_call_wall.h).
//
// Called by main, before there is another thread: what holds for a thread holds for those that it
// starts. Does not block. Returns a sentence for each wall that this kernel does not have.
//   kAborted: the supervisor has gone.
//   Otherwise what the kernel says of a wall that it has and did not put up; the message names it.
absl::StatusOr<std::vector<std::string>> PutUpWalls(const WallOptions& options);

}  // namespace ringd

#endif  // RINGD_DAEMON_ENGINE_PROCESS_WALLS_H_
