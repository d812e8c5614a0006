#include "daemon/supervisor/engine_member.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <string>

#include "proto/peers/peer_frame.h"

namespace ringd {
namespace {

// Neither side has closed it. What is no TCP connection is none that could have ended.
bool IsEstablished(int socket) noexcept {
  tcp_info info{};
  socklen_t length = sizeof(info);
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return true;
  return info.tcpi_state == TCP_ESTABLISHED;
}

}  // namespace

void EngineMember::KeepControl(const UniqueFd& socket) {
  UniqueFd kept(::fcntl(socket.get(), F_DUPFD_CLOEXEC, 0));
  if (!kept.valid()) return;  // then its other end hears of a lost connection
  const MutexLock lock(mutex_);
  std::erase_if(controls_, [](const Control& one) { return !IsEstablished(one.socket.get()); });
  if (gone_) return;
  EnginePlaces::Place place = places_->controls.Take();
  if (place == nullptr && !controls_.empty()) {
    // More than a user has use for: his engine keeps them open and says that they have ended.
    place = std::move(controls_.front().place);
    controls_.erase(controls_.begin());
  }
  if (place != nullptr) controls_.push_back({std::move(kept), std::move(place)});
}

void EngineMember::SayLast(const absl::Status& why) {
  std::vector<Control> controls;
  {
    const MutexLock lock(mutex_);
    std::swap(controls, controls_);
  }
  const std::string frame = EncodePeerEnd(absl::DataLossError(why.message()));
  for (const Control& control : controls) {
    static_cast<void>(
        !::send(control.socket.get(), frame.data(), frame.size(), MSG_DONTWAIT | MSG_NOSIGNAL));
    ::shutdown(control.socket.get(), SHUT_RDWR);
  }
}

}  // namespace ringd
