// All parts of a serving ringd, put together.
#ifndef RINGD_DAEMON_SERVICE_DAEMON_H_
#define RINGD_DAEMON_SERVICE_DAEMON_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/attach/admission.h"
#include "daemon/attach/attach_listener.h"
#include "daemon/config/config.h"
#include "daemon/door/door.h"
#include "daemon/gpu/gpu_finder.h"
#include "daemon/jobs/plans/plan_store.h"
#include "daemon/rpc/local_server.h"
#include "daemon/sessions/isolated_executor.h"
#include "daemon/supervisor/engines.h"
#include "daemon/supervisor/lobby.h"
#include "daemon/supervisor/node_drain.h"
#include "daemon/supervisor/node_network.h"
#include "daemon/supervisor/supervisor.h"

namespace ringd {

// Thread safety: one thread at a time, the one that handles signals.
// Ownership: owns the parts. They borrow from each other in the order of the members: later ones
//   use earlier ones, so that they are stopped and destroyed in reverse.
class Daemon {
 public:
  // Says what Start would say of transports, interfaces, congestion control and the cluster's key,
  // and starts nothing. `config` is complete (ResolveNetwork).
  static absl::Status Check(const Config& config);

  // Serves when it returns. `config` is complete (ResolveNetwork).
  //   What the part that failed says, which names the setting concerned.
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(const Config& config,
                                                       const std::string& config_file);
  ~Daemon();

  // Where other ringds reach this one, with the real port.
  const std::string& peer_address() const noexcept { return peer_address_; }

  // More interfaces carry data than before, or their addresses are others: jobs to come use them,
  // and other ringds find this one there. An error leaves out what is new. Does not block.
  absl::Status UseLinks();
  // At all of its addresses: a launcher may name this node by any. An error leaves out what the
  // kernel does not let it serve yet.
  absl::Status ListenOnPeerInterface();
  // What keeps interfaces from carrying data now, for ringctl; empty: nothing.
  void TellOfLinks(const std::string& problems) { supervisor_->TellOfLinks(problems); }

  // Who is admitted; to be renewed for a Reload.
  std::shared_ptr<Admission> admission() { return listener_->admission(); }
  // Takes over the settings that may change while ringd runs (Setting::reloaded), but log_level and
  // drain_timeout, which are others'. `admission`: by these settings.
  void Reload(const Config& loaded, std::shared_ptr<Admission> admission);

  // Refuses trainers and jobs from now on; those there are go on. For good: ringd ends.
  void Drain() { drain_->BeginToEnd(); }
  // True when no trainer is attached.
  bool Idle() const { return supervisor_->CountSessions() == 0; }
  // Grows while ringd is alive, at least once a second.
  std::uint64_t heartbeat() const noexcept { return engines_->heartbeat(); }

  // Ends what still runs, telling everybody concerned why. Takes a few seconds at most. Idempotent.
  void Stop();

 private:
  Daemon() = default;
  // As NodeDrain::Apply; the listener asks.
  void ApplyDrain(bool draining);
  absl::Status StartParts(const Config& config, const std::string& config_file);

  Config config_;
  std::string peer_address_;
  std::string cluster_key_;
  IsolatedExecutor isolated_;
  std::unique_ptr<Door> door_;
  std::unique_ptr<NodeNetwork> network_;
  std::unique_ptr<PlanStore> plans_;
  std::unique_ptr<Engines> engines_;
  std::unique_ptr<Lobby> lobby_;
  std::unique_ptr<GpuFinder> gpus_;
  std::unique_ptr<NodeDrain> drain_;
  std::unique_ptr<Supervisor> supervisor_;
  std::unique_ptr<LocalServer> local_server_;
  std::unique_ptr<AttachListener> listener_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SERVICE_DAEMON_H_
