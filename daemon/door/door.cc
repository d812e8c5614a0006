#include "daemon/door/door.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <iterator>
#include <span>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "daemon/config/host_port.h"
#include "daemon/door/door_poll.h"
#include "daemon/logging/log.h"
#include "proto/base/errno_status.h"

namespace ringd {
namespace {

// Connections taken in before handshakes under way get their turn.
constexpr int kAcceptsPerTurn = 64;
constexpr Clock::duration kAcceptPause = std::chrono::milliseconds(100);
constexpr std::uint32_t kLogLines = 5;
constexpr Clock::duration kLogPeriod = std::chrono::seconds(10);

UniqueFd OpenReserve() { return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

}  // namespace

absl::StatusOr<std::unique_ptr<Door>> Door::Open(DoorOptions options) {
  absl::StatusOr<ListeningSocket> listening = ListenForDoor(options.address);
  if (!listening.ok()) return listening.status();
  absl::StatusOr<WakingEpoll> epoll = WakingEpoll::Create(kDoorWakeKey);
  if (!epoll.ok()) return epoll.status();
  std::unique_ptr<Door> door(
      new Door(std::move(options), *std::move(listening), *std::move(epoll)));
  if (!door->WatchListeners()) return ErrnoStatus(errno, "epoll_ctl");
  return door;
}

Door::Door(DoorOptions options, ListeningSocket listening, WakingEpoll epoll)
    : address_(std::move(listening.address)),
      congestion_control_(options.congestion_control),
      epoll_(std::move(epoll)),
      reserve_(OpenReserve()),
      dials_(epoll_.fd(), options.node_name, options.congestion_control),
      strangers_(epoll_.fd(), &receptions_, &dials_, options.node_name, options.challenge_flags,
                 options.limits),
      log_limiter_(kLogLines, kLogPeriod) {
  listeners_.push_back(std::move(listening.fd));
  hosts_.push_back(ParseHostPort(address_)->host);
}

Door::~Door() { Stop(); }

void Door::Start() {
  thread_ = std::thread(&Door::Run, this);
  pthread_setname_np(thread_.native_handle(), "ringd-door");
}

void Door::Stop() {
  if (thread_.joinable()) {
    {
      MutexLock lock(mutex_);
      orders_.stop = true;
    }
    epoll_.Wake();
    thread_.join();
  }
  strangers_.Clear();
  dials_.Clear();
  listeners_.clear();
  reserve_.Reset();
  MutexLock lock(mutex_);
  orders_ = {};
}

absl::Status Door::AlsoListenOn(const std::string& host) {
  {
    MutexLock lock(mutex_);
    for (const std::string& present : hosts_) {
      // "::" takes both families here (door_socket.cc).
      const bool covers =
          present == "::" || (present == "0.0.0.0" && !absl::StrContains(host, ':'));
      if (present == host || covers) return absl::OkStatus();
    }
  }
  absl::StatusOr<ListeningSocket> listening =
      ListenForDoor(FormatHostPort({host, ParseHostPort(address_)->port}));
  if (!listening.ok()) return listening.status();
  {
    MutexLock lock(mutex_);
    hosts_.push_back(host);
    orders_.listeners.push_back(std::move(listening->fd));
  }
  epoll_.Wake();
  return absl::OkStatus();
}

void Door::Reconsider() {
  {
    MutexLock lock(mutex_);
    orders_.reconsider = true;
  }
  epoll_.Wake();
}

void Door::Dial(DialRequest request) {
  {
    MutexLock lock(mutex_);
    orders_.dials.push_back(std::move(request));
  }
  epoll_.Wake();
}

void Door::Abandon(std::uint64_t group) {
  {
    MutexLock lock(mutex_);
    orders_.abandoned.push_back(group);
  }
  epoll_.Wake();
}

bool Door::FollowOrders(Clock::time_point now) {
  epoll_.TakeWake();
  Orders orders;
  {
    MutexLock lock(mutex_);
    std::swap(orders, orders_);
  }
  if (orders.stop) return false;
  for (DialRequest& request : orders.dials) dials_.Add(std::move(request), now);
  for (const std::uint64_t group : orders.abandoned) dials_.Abandon(group);
  if (!orders.listeners.empty()) {
    std::move(orders.listeners.begin(), orders.listeners.end(), std::back_inserter(listeners_));
    PauseAccepting(now);
    accept_again_ = now;
  }
  if (orders.reconsider) strangers_.Reconsider(now);
  return true;
}

void Door::Run() {
  std::array<epoll_event, 64> events;
  for (;;) {
    const int count = ::epoll_wait(epoll_.fd(), events.data(), static_cast<int>(events.size()),
                                   MillisecondsToNextDeadline(Clock::now()));
    const Clock::time_point now = Clock::now();
    bool accept = false;
    // Those who are in the middle of it first: who comes may push others out.
    for (const epoll_event& event :
         std::span(events).first(static_cast<std::size_t>(std::max(count, 0)))) {
      const std::uint64_t key = event.data.u64;
      if (key == kDoorWakeKey) {
        if (!FollowOrders(now)) return;
      } else if (key == kDoorListenKey) {
        accept = true;
      } else if (key >= kFirstDialKey) {
        dials_.OnEvent(key, now);
      } else {
        strangers_.OnEvent(key, now);
      }
    }
    if (accept) {
      for (const UniqueFd& listener : listeners_) AcceptAll(listener.get(), now);
    }
    ResumeAccepting(now);
    strangers_.DropExpired(now);
    dials_.RunDue(now);
  }
}

void Door::AcceptAll(int listener, Clock::time_point now) {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    int error = 0;
    AcceptedSocket accepted = AcceptOne(listener, congestion_control_, error);
    switch (error) {
      case 0:
        strangers_.Add(std::move(accepted), now);
        break;
      case EAGAIN:
        return;
      case EMFILE:
      case ENFILE:
        // The kernel says so also if nobody waits.
        if (!TurnOneAway(listener, error, now)) return;
        if (!reserve_.valid()) return PauseAccepting(now);
        break;
      case ENOMEM:
      case ENOBUFS:
        return PauseAccepting(now);
      default:
        break;  // of the connection that was next, which is gone (accept(2))
    }
  }
}

// Otherwise it would wait, and its dialler with it, and keep this thread awake.
bool Door::TurnOneAway(int listener, int error, Clock::time_point now) {
  reserve_.Reset();
  int outcome = 0;
  AcceptOne(listener, {}, outcome);
  reserve_ = OpenReserve();
  if (outcome == EAGAIN) return false;
  if (log_limiter_.Pass(now).has_value()) {
    LogError(ErrnoStatus(error, absl::StrCat("a connection to ", address_, " was turned away"))
                 .message());
  }
  return true;
}

bool Door::WatchListeners() noexcept {
  bool watched = true;
  for (const UniqueFd& listener : listeners_) {
    watched &= WatchAtDoor(epoll_.fd(), listener.get(), EPOLLIN, kDoorListenKey);
  }
  return watched;
}

void Door::PauseAccepting(Clock::time_point now) {
  for (const UniqueFd& listener : listeners_) UnwatchAtDoor(epoll_.fd(), listener.get());
  accept_again_ = now + kAcceptPause;
}

void Door::ResumeAccepting(Clock::time_point now) {
  if (now < accept_again_) return;
  if (!reserve_.valid()) reserve_ = OpenReserve();
  if (WatchListeners()) {
    accept_again_ = Clock::time_point::max();
  } else {
    PauseAccepting(now);
  }
}

int Door::MillisecondsToNextDeadline(Clock::time_point now) const {
  const Clock::time_point next =
      std::min({accept_again_, strangers_.NextDeadline(), dials_.NextDue()});
  if (next == Clock::time_point::max()) return -1;
  if (next <= now) return 0;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - now);
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 60'000));
}

}  // namespace ringd
