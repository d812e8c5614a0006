// What systemd is told about ringd (sd_notify), if systemd started it.
#ifndef RINGD_DAEMON_SERVICE_SERVICE_MANAGER_H_
#define RINGD_DAEMON_SERVICE_SERVICE_MANAGER_H_

#include <chrono>
#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "proto/base/clock.h"

namespace ringd {

// Without systemd (no NOTIFY_SOCKET) every method does nothing.
//
// Thread safety: one thread at a time.
class ServiceManager {
 public:
  ServiceManager();

  void Ready(absl::string_view status);
  void Status(absl::string_view status);
  void Stopping(absl::string_view status);

  // Feeds the watchdog if `heartbeat`, a count that grows while the engine is alive, has grown since
  // the last time. Call often; it notifies as rarely as the watchdog allows.
  void Watch(std::uint64_t heartbeat, Clock::time_point now);

 private:
  std::optional<Clock::duration> watchdog_interval_;  // none: no watchdog
  Clock::time_point next_ping_;
  std::uint64_t last_heartbeat_ = 0;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SERVICE_SERVICE_MANAGER_H_
