// Whether engines can be started, and have the transport that is wanted: found out before a job
// needs them.
#ifndef RINGD_DAEMON_SUPERVISOR_ENGINE_TRIAL_H_
#define RINGD_DAEMON_SUPERVISOR_ENGINE_TRIAL_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/supervisor/engine_program.h"
#include "proto/rpc/engine.pb.h"

namespace ringd {

// Starts an engine, as EngineProcess::Start does, that opens its transport and ends. `start` is as
// for a job's, without a job. The transport's name. Waits 10 s at most.
//   What the engine says; kUnavailable: it has ended without a word; kDeadlineExceeded: it says
//   nothing.
absl::StatusOr<std::string> TryEngine(const EngineProgram& program,
                                      const std::vector<std::string>& arguments,
                                      v1::EngineStart start);

}  // namespace ringd

#endif  // RINGD_DAEMON_SUPERVISOR_ENGINE_TRIAL_H_
