#include "daemon/supervisor/engine_connections.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <string>
#include <utility>

#include "proto/peers/peer_frame.h"

namespace ringd {
namespace {

// Its other end has closed it, or it has broken. Unlike others this call waits for nobody who sends
// through it.
bool HasEnded(int socket) noexcept {
  pollfd entry{socket, POLLRDHUP, 0};
  return ::poll(&entry, 1, 0) == 1;
}

}  // namespace

EngineConnections::~EngineConnections() {
  const MutexLock lock(mutex_);
  Discard(std::move(controls_));
}

void EngineConnections::Discard(std::vector<Control> controls) const {
  if (controls.empty()) return;
  // Whatever closing them takes.
  for (Control& control : controls) control.place.reset();
  isolated_->Discard(std::move(controls));
}

void EngineConnections::KeepControl(const UniqueFd& socket) {
  UniqueFd kept(::fcntl(socket.get(), F_DUPFD_CLOEXEC, 0));
  if (!kept.valid()) return;  // then its other end hears of a lost connection
  std::vector<Control> over;
  const MutexLock lock(mutex_);
  for (Control& one : controls_) {
    if (HasEnded(one.socket.get())) over.push_back(std::move(one));
  }
  std::erase_if(controls_, [](const Control& one) { return !one.socket.valid(); });
  CountedPlaces::Place place = gone_ ? nullptr : places_->controls.Take();
  if (place == nullptr && !gone_ && !controls_.empty()) {
    // More than a user has use for: his engine keeps them open and says that they have ended.
    place = std::move(controls_.front().place);
    over.push_back(std::move(controls_.front()));
    controls_.erase(controls_.begin());
  }
  if (!gone_ && place != nullptr) {
    controls_.push_back({std::move(kept), std::move(place)});
  } else {
    over.push_back({std::move(kept), nullptr});
  }
  Discard(std::move(over));
}

void EngineConnections::SayLast(const absl::Status& why) {
  std::vector<Control> controls;
  {
    const MutexLock lock(mutex_);
    std::swap(controls, controls_);
  }
  if (controls.empty()) return;
  // One task: a job whose ranks hold it up keeps its own nodes from hearing, and no other's. The
  // user's places are there as long as one of them is taken.
  isolated_->Run([places = places_, frame = EncodePeerEnd(absl::DataLossError(why.message())),
                  kept = std::make_shared<std::vector<Control>>(std::move(controls))] {
    // Not before: those that wait for their turn hold nobody up.
    const CountedPlaces::Place saying = places->obituaries.Take();
    const std::vector<Control> said = std::move(*kept);  // closed here, before the place is free
    if (saying == nullptr) return;
    for (const Control& control : said) {
      static_cast<void>(
          !::send(control.socket.get(), frame.data(), frame.size(), MSG_DONTWAIT | MSG_NOSIGNAL));
      ::shutdown(control.socket.get(), SHUT_RDWR);
    }
  });
}

}  // namespace ringd
