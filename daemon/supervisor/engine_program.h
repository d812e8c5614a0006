// Which program serves a job.
#ifndef RINGD_DAEMON_SUPERVISOR_ENGINE_PROGRAM_H_
#define RINGD_DAEMON_SUPERVISOR_ENGINE_PROGRAM_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/config/config.h"

namespace ringd {

// The path of ringd-engine: the setting engine_program, or the file of that name in the folder of
// this process's own program. Any thread.
//   kFailedPrecondition: there is no such program, or this user may not execute it; the message
//   says which and names the setting.
absl::StatusOr<std::string> ResolveEngineProgram(const Config& config);

// What is told to ringd-engine: whether it has to reckon with other users' trainers (see
// daemon/engine_process/walls.h). Another one is needed when that changes with a reload.
std::vector<std::string> EngineArguments(const Config& config);

}  // namespace ringd

#endif  // RINGD_DAEMON_SUPERVISOR_ENGINE_PROGRAM_H_
