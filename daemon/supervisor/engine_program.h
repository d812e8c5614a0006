// Which program serves a job.
#ifndef RINGD_DAEMON_SUPERVISOR_ENGINE_PROGRAM_H_
#define RINGD_DAEMON_SUPERVISOR_ENGINE_PROGRAM_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/config/config.h"
#include "proto/base/unique_fd.h"

namespace ringd {

// The file of ringd-engine, held open: all engines of a ringd are the program that it has tried at
// its start, also when an update has put another one in its place.
//
// Thread safety: any thread.
class EngineProgram {
 public:
  // The setting engine_program, or the file ringd-engine in the folder of this process's own
  // program.
  //   kFailedPrecondition: there is no such program, or this user may not execute it; the message
  //   says which and names the setting.
  static absl::StatusOr<EngineProgram> Open(const Config& config);
  // The program with that path. What the kernel says.
  static absl::StatusOr<EngineProgram> At(std::string path);

  const std::string& path() const noexcept { return path_; }
  // For SpawnOrder::program.
  int file() const noexcept { return file_.get(); }
  // Its path leads to another file by now, or to none. Asks the file system, and waits for it.
  bool IsReplaced() const;

 private:
  EngineProgram(std::string path, UniqueFd file) : path_(std::move(path)), file_(std::move(file)) {}

  std::string path_;
  UniqueFd file_;  // so that no other file gets its inode's number
};

// What is told to ringd-engine: whether it has to reckon with other users' trainers (see
// daemon/engine_process/walls.h). Another one is needed when that changes with a reload.
//
// Thread safety: none, one thread at a time.
class EngineArguments {
 public:
  // Once other users have been admitted engines have all walls: who is admitted no more may have
  // attached before.
  std::vector<std::string> For(const Config& config);

 private:
  bool admits_others_ = false;  // or has
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SUPERVISOR_ENGINE_PROGRAM_H_
