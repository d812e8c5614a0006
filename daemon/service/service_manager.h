// What systemd is told about ringd (sd_notify's protocol), if systemd started it.
#ifndef RINGD_DAEMON_SERVICE_SERVICE_MANAGER_H_
#define RINGD_DAEMON_SERVICE_SERVICE_MANAGER_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "proto/base/clock.h"
#include "proto/base/unique_fd.h"

namespace ringd {

// Without systemd (no NOTIFY_SOCKET) every method does nothing. None blocks, as sd_notify() would
// while the receiver's queue is full: what finds no room is kept, and sent by Watch() later.
//
// Thread safety: one thread at a time.
class ServiceManager {
 public:
  ServiceManager();

  // What ringd does just now, for people who ask systemd.
  void Status(absl::string_view status);
  // What is under way, a start or a stop, ends within `time`, or this is said again: it takes more
  // than systemd waits by itself.
  void Extend(std::chrono::seconds time);
  void Ready(absl::string_view status);
  void Stopping(absl::string_view status);
  // Ready() tells that it has ended.
  void Reloading();

  // Feeds the watchdog if `heartbeat`, a count that grows while ringd is alive, has grown
  // since the last time. Call often; it notifies as rarely as the watchdog allows.
  void Watch(std::uint64_t heartbeat, Clock::time_point now);

 private:
  void Notify(absl::string_view state);
  // False if there was no room for it.
  bool Send(absl::string_view message) const;

  std::string path_;
  UniqueFd socket_;
  std::string unsent_;
  std::optional<Clock::duration> watchdog_interval_;  // none: no watchdog
  Clock::time_point next_ping_;
  std::uint64_t last_heartbeat_ = 0;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SERVICE_SERVICE_MANAGER_H_
