// The control streams' side of the supervisor's door.
#ifndef RINGD_DAEMON_ENGINE_PROCESS_REMOTE_CONTROL_DOOR_H_
#define RINGD_DAEMON_ENGINE_PROCESS_REMOTE_CONTROL_DOOR_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>

#include "absl/base/thread_annotations.h"
#include "daemon/peers/control_door.h"
#include "proto/base/mutex.h"
#include "proto/base/unique_fd.h"
#include "proto/rpc/engine_network.pb.h"

namespace ringd {

// Thread safety: as ControlDoor; OnEvent from any thread. Handlers are called on the thread that
//   calls OnEvent, one after the other, with a lock held for which only others of them, and Stop,
//   wait.
class RemoteControlDoor final : public ControlDoor {
 public:
  using Send = std::function<void(v1::EngineNetworkRequest)>;
  // As RemoteNetwork.
  RemoteControlDoor(uid_t user, Send send);

  // `socket`: may be none. What does not belong to anything here is dropped.
  void OnEvent(const v1::EngineNetworkEvent& event, UniqueFd socket)
      ABSL_LOCKS_EXCLUDED(calling_, mutex_);

  void Start(Handlers handlers) override ABSL_LOCKS_EXCLUDED(calling_);
  ExpectationId Expect(ExpectedJob job) override ABSL_LOCKS_EXCLUDED(mutex_);
  void StopExpecting(ExpectationId job) override;
  // `user` is the engine's.
  void Release(uid_t user) override;
  void Dial(DialId id, CoordinatorAddress coordinator, Clock::time_point deadline,
            DialDone done) override ABSL_LOCKS_EXCLUDED(mutex_);
  void Abandon(DialId id) override ABSL_LOCKS_EXCLUDED(mutex_);
  void Stop() override ABSL_LOCKS_EXCLUDED(calling_);

 private:
  void OnDialled(const v1::EngineCoordinatorDialled& event, UniqueFd socket)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(calling_) ABSL_LOCKS_EXCLUDED(mutex_);

  const uid_t user_;
  const Send send_;

  Mutex calling_;  // before mutex_
  bool running_ ABSL_GUARDED_BY(calling_) = false;
  Handlers handlers_ ABSL_GUARDED_BY(calling_);

  Mutex mutex_;
  std::uint64_t last_expectation_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<DialId, DialDone> dials_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ringd

#endif  // RINGD_DAEMON_ENGINE_PROCESS_REMOTE_CONTROL_DOOR_H_
