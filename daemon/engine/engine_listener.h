// What an engine tells whoever has started it.
#ifndef RINGD_DAEMON_ENGINE_ENGINE_LISTENER_H_
#define RINGD_DAEMON_ENGINE_ENGINE_LISTENER_H_

#include <cstdint>

#include "proto/rpc/admin.pb.h"
#include "proto/types/ids.h"

namespace ringd {

// Thread safety: called on the progress thread, one call at a time, and on that of Engine::Stop
//   once the engine's has ended. No call may block, nor call the engine's Stop.
// Ownership: borrowed; outlives the engine.
class EngineListener {
 public:
  virtual ~EngineListener() = default;

  // Exactly once for each session that the engine was given before its Stop. `for_cause`: it broke
  // the protocol.
  virtual void OnSessionEnded(SessionId session, bool for_cause) = 0;

  // How many jobs there are, whenever that changes: before any answer to the join that has opened
  // one.
  virtual void OnJobs(std::uint32_t jobs) = 0;

  // A job is coordinated here, and the next one has that generation then: before anybody hears of
  // the job's own.
  virtual void OnGeneration(std::uint32_t next) = 0;

  // The last that can be said of a job, which has ended. Not of jobs that Engine::Stop ends.
  virtual void OnJobEnded(const v1::Job& job) = 0;

  // There is no session, job or coordinator any more, and no other node would miss this engine.
  // `sessions`: how many there have been, also such as had no memory that can be mapped; one that
  // is on its way is not counted. Again after each session that comes later.
  virtual void OnIdle(std::uint64_t sessions) = 0;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_ENGINE_ENGINE_LISTENER_H_
