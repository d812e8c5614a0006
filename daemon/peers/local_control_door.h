// The control streams' side of a door of this process.
#ifndef RINGD_DAEMON_PEERS_LOCAL_CONTROL_DOOR_H_
#define RINGD_DAEMON_PEERS_LOCAL_CONTROL_DOOR_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "daemon/door/door.h"
#include "daemon/peers/control_door.h"
#include "daemon/peers/coordinator_dial.h"
#include "daemon/peers/expected_jobs.h"
#include "daemon/peers/name_resolver.h"
#include "proto/base/mutex.h"

namespace ringd {

// Thread safety: as ControlDoor. Handlers are called on the door's thread without a lock, `done`
//   also on a thread of the resolver's.
// Ownership: borrows the door, which must have been stopped before this goes.
class LocalControlDoor final : public ControlDoor {
 public:
  // `door_flags`: as in a Hello, kDoorHasClusterKey.
  LocalControlDoor(Door* door, std::uint32_t door_flags);
  ~LocalControlDoor() override;

  // Whether nodes of jobs that are not expected are refused for good: this ringd drains.
  void RefuseNewJobs(bool refuse);

  void Start(Handlers handlers) override;
  ExpectationId Expect(ExpectedJob job) override;
  void StopExpecting(ExpectationId job) override { expected_->Remove(job); }
  void Release(uid_t user) override { expected_->Release(user); }
  void Dial(DialId id, CoordinatorAddress coordinator, Clock::time_point deadline,
            DialDone done) override ABSL_LOCKS_EXCLUDED(mutex_);
  void Abandon(DialId id) override ABSL_LOCKS_EXCLUDED(mutex_);
  // Handlers are called, and nodes can be turned away, until the door has been stopped.
  void Stop() override { resolver_.Stop(); }

 private:
  // Null: it has ended, or was abandoned.
  std::shared_ptr<CoordinatorDial> Forget(DialId id) ABSL_LOCKS_EXCLUDED(mutex_);

  Door* const door_;
  const std::uint32_t door_flags_;
  Handlers handlers_;  // written once, before the door knows of expected_
  const std::shared_ptr<ExpectedJobs> expected_;
  Mutex mutex_;
  std::map<DialId, std::shared_ptr<CoordinatorDial>> dials_ ABSL_GUARDED_BY(mutex_);
  NameResolver resolver_;  // stopped before the rest goes
};

}  // namespace ringd

#endif  // RINGD_DAEMON_PEERS_LOCAL_CONTROL_DOOR_H_
