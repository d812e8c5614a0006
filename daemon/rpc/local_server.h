// The gRPC server of this node: trainers, ringctl, health probes.
#ifndef RINGD_DAEMON_RPC_LOCAL_SERVER_H_
#define RINGD_DAEMON_RPC_LOCAL_SERVER_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "daemon/engine/engine_control.h"
#include "proto/base/clock.h"
#include "proto/base/unique_fd.h"

namespace ringd {

// Serves Client, Admin, the standard health service and reflection on connections that it is given:
// it listens nowhere itself. Who may connect is decided before, by the attach listener.
//
// Thread safety: all methods from any thread; no connections after Shutdown.
// Ownership: owns the connections; the engine is borrowed and outlives this.
class LocalServer {
 public:
  // `max_joins`: how many Join calls may wait at once, each of which takes a thread.
  static absl::StatusOr<std::unique_ptr<LocalServer>> Start(EngineControl* engine,
                                                            std::uint64_t max_joins);
  ~LocalServer();

  // `socket` is connected and non-blocking.
  void AddConnection(UniqueFd socket);

  // The same, of somebody who is not admitted: every call is answered PERMISSION_DENIED.
  void RefuseConnection(UniqueFd socket);

  // What the health service answers, for the server as a whole and for each of its services.
  void SetServing(bool serving);

  // Takes no more calls, waits for those under way and cancels what is left at `deadline`. Idempotent.
  void Shutdown(Clock::time_point deadline);

 private:
  class Impl;
  explicit LocalServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_RPC_LOCAL_SERVER_H_
