// The door of this node, for all its engines: who lets nodes in for them, and dials.
#ifndef RINGD_DAEMON_SUPERVISOR_NODE_NETWORK_H_
#define RINGD_DAEMON_SUPERVISOR_NODE_NETWORK_H_

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "daemon/door/door.h"
#include "daemon/door/open_wires.h"
#include "daemon/peers/local_control_door.h"
#include "daemon/supervisor/engine_connections.h"
#include "daemon/supervisor/engine_places.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"

namespace ringd {

class EngineNetwork;

struct NodeNetworkOptions {
  std::uint32_t door_flags = 0;  // kDoorHasClusterKey
  // How long a wire's dial goes on trying: the engine at the other end may be stopped, and is ended
  // there after 30 s by default.
  Clock::duration wire_patience = std::chrono::seconds(40);
  std::size_t most_untaken = 256;  // see OpenWires
};

//   NodeNetwork network(door, isolated, options);
//   auto engine = network.AddEngine(uid, job_id, [&](event, fds) { ...to its channel... });
//   ... on the thread that reads its channel: engine->OnRequest(request)
//   ... once it has ended: engine.reset();
//   door->Stop(); network.Stop();
//
// Receives the door's connections of all purposes from the beginning on.
//
// Thread safety: any thread.
// Ownership: borrows both. The door must have been stopped before this goes; its engines have gone
//   before, too.
class NodeNetwork {
 public:
  NodeNetwork(Door* door, IsolatedExecutor* isolated, const NodeNetworkOptions& options);
  ~NodeNetwork();

  // An engine with the job of that user. `send` never blocks; it is called on any thread, one call
  // at a time, and not any more when the EngineNetwork has gone. Whatever it does must not wait for
  // that to go, nor for OnRequest.
  std::unique_ptr<EngineNetwork> AddEngine(uid_t user, std::string job_id,
                                           EngineConnections::Send send)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Whether nodes of jobs that are not expected are refused for good: this ringd drains.
  void RefuseNewJobs(bool refuse) { control_.RefuseNewJobs(refuse); }
  // Nobody is looked for any more. The door has been stopped.
  void Stop() { control_.Stop(); }

 private:
  friend class EngineNetwork;

  struct Route {
    std::shared_ptr<EngineConnections> engine;
    std::uint64_t number = 0;  // the engine's for the expectation
  };

  // ---- EngineNetwork's
  ExpectationId Expect(std::shared_ptr<EngineConnections> engine, std::uint64_t number,
                       ExpectedJob job) ABSL_LOCKS_EXCLUDED(mutex_);
  void StopExpecting(ExpectationId id) ABSL_LOCKS_EXCLUDED(mutex_);
  ControlDoor::DialId NewDial() noexcept {
    return ControlDoor::DialId(next_dial_.fetch_add(1, std::memory_order_relaxed));
  }

  // ---- the door's thread
  void OnAdmitted(ExpectationId id, uid_t user, std::string from, UniqueFd socket)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void OnRefused(ExpectationId id, const RefusedNode& node) ABSL_LOCKS_EXCLUDED(mutex_);
  std::optional<Route> Find(ExpectationId id) ABSL_LOCKS_EXCLUDED(mutex_);

  Door* const door_;
  IsolatedExecutor* const isolated_;
  const NodeNetworkOptions options_;
  // The door's thread may be in the middle of a call to them.
  const std::shared_ptr<OpenWires> wires_;
  const std::shared_ptr<OpenWires> exchanges_;
  std::atomic<std::uint64_t> next_dial_{1};  // only has to be another one
  Mutex mutex_;
  std::map<ExpectationId, Route> routes_ ABSL_GUARDED_BY(mutex_);
  // Of users who have engines, or did; expired: none any more.
  std::map<uid_t, std::weak_ptr<UserPlaces>> places_ ABSL_GUARDED_BY(mutex_);
  LocalControlDoor control_;  // goes first
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SUPERVISOR_NODE_NETWORK_H_
