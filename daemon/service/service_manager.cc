#include "daemon/service/service_manager.h"

#include <systemd/sd-daemon.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace ringd {
namespace {

void Notify(const std::string& state) { static_cast<void>(sd_notify(0, state.c_str())); }

}  // namespace

ServiceManager::ServiceManager() {
  std::uint64_t micros = 0;
  // A third of the time that systemd waits: one late ping is no death.
  if (sd_watchdog_enabled(0, &micros) > 0) {
    watchdog_interval_ = std::chrono::microseconds(micros / 3);
  }
}

void ServiceManager::Ready(absl::string_view status) {
  Notify(absl::StrCat("READY=1\nSTATUS=", status));
}

void ServiceManager::Status(absl::string_view status) { Notify(absl::StrCat("STATUS=", status)); }

void ServiceManager::Stopping(absl::string_view status) {
  Notify(absl::StrCat("STOPPING=1\nSTATUS=", status));
}

void ServiceManager::Watch(std::uint64_t heartbeat, Clock::time_point now) {
  if (!watchdog_interval_.has_value() || now < next_ping_ || heartbeat == last_heartbeat_) return;
  Notify("WATCHDOG=1");
  last_heartbeat_ = heartbeat;
  next_ping_ = now + *watchdog_interval_;
}

}  // namespace ringd
