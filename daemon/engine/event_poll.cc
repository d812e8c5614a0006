#include "daemon/engine/event_poll.h"

#include <sys/epoll.h>

#include <array>

namespace ringd {

EventPoll::EventPoll() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {}

void EventPoll::Add(int fd, EventKind kind, SessionId session) {
  if (fd < 0) return;
  epoll_event event{};
  // A client has no reason to write on its lifeline; what it writes must not keep us awake.
  event.events = kind == EventKind::kHangUp ? EPOLLRDHUP : EPOLLIN;
  event.data.u64 = (static_cast<std::uint64_t>(kind) << 32) | session.value();
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
}

void EventPoll::Remove(int fd) {
  if (fd >= 0) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

const std::vector<EngineEvent>& EventPoll::Wait(std::chrono::milliseconds timeout) {
  std::array<epoll_event, 64> ready;
  const int count = ::epoll_wait(epoll_.get(), ready.data(), static_cast<int>(ready.size()),
                                 static_cast<int>(timeout.count()));
  events_.clear();
  for (int i = 0; i < count; ++i) {
    const std::uint64_t data = ready[static_cast<std::size_t>(i)].data.u64;
    events_.push_back(EngineEvent{static_cast<EventKind>(data >> 32),
                                  SessionId(static_cast<std::uint32_t>(data))});
  }
  return events_;
}

}  // namespace ringd
