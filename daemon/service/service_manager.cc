#include "daemon/service/service_manager.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace ringd {

ServiceManager::ServiceManager() {
  std::uint64_t micros = 0;
  // A third of the time that systemd waits: one late ping is no death.
  if (sd_watchdog_enabled(0, &micros) > 0) {
    watchdog_interval_ = std::chrono::microseconds(micros / 3);
  }
  const char* path = std::getenv("NOTIFY_SOCKET");
  if (path != nullptr && (path[0] == '/' || path[0] == '@') &&
      std::strlen(path) < sizeof(sockaddr_un::sun_path)) {
    path_ = path;
    socket_.Reset(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  }
}

void ServiceManager::Status(absl::string_view status) { Notify(absl::StrCat("STATUS=", status)); }

void ServiceManager::Extend(std::chrono::seconds time) {
  Notify(absl::StrCat("EXTEND_TIMEOUT_USEC=", std::chrono::microseconds(time).count()));
}

void ServiceManager::Ready(absl::string_view status) {
  Notify(absl::StrCat("READY=1\nSTATUS=", status));
}

void ServiceManager::Stopping(absl::string_view status) {
  Notify(absl::StrCat("STOPPING=1\nSTATUS=", status));
}

void ServiceManager::Reloading() {
  const auto since_boot = std::chrono::duration_cast<std::chrono::microseconds>(
      std::chrono::steady_clock::now().time_since_epoch());
  Notify(absl::StrCat("RELOADING=1\nMONOTONIC_USEC=", since_boot.count()));
}

void ServiceManager::Watch(std::uint64_t heartbeat, Clock::time_point now) {
  if (!unsent_.empty() && Send(unsent_)) unsent_.clear();
  if (!watchdog_interval_.has_value() || now < next_ping_ || heartbeat == last_heartbeat_) return;
  // One that is lost is made good by the next.
  static_cast<void>(Send("WATCHDOG=1"));
  last_heartbeat_ = heartbeat;
  next_ping_ = now + *watchdog_interval_;
}

void ServiceManager::Notify(absl::string_view state) {
  // One message may hold several states; what comes later counts.
  absl::StrAppend(&unsent_, unsent_.empty() ? "" : "\n", state);
  if (Send(unsent_)) unsent_.clear();
}

bool ServiceManager::Send(absl::string_view message) const {
  if (!socket_.valid()) return true;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path_.data(), path_.size());
  // '@' stands for the abstract namespace's zero byte; there the name's length counts.
  if (path_.front() == '@') address.sun_path[0] = '\0';
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path_.size());
  const ssize_t sent = ::sendto(socket_.get(), message.data(), message.size(), MSG_NOSIGNAL,
                                reinterpret_cast<const sockaddr*>(&address), length);
  // Whoever isn't there any more need not be told; only a full queue is worth another attempt.
  return sent >= 0 || (errno != EAGAIN && errno != ENOBUFS && errno != EINTR);
}

}  // namespace ringd
