#include "daemon/lanes/rank_exchange/rank_exchange_sockets.h"

#include <sys/epoll.h>

#include <cerrno>
#include <utility>

#include "proto/base/errno_status.h"

namespace ringd {

absl::StatusOr<std::unique_ptr<RankExchangeSockets>> RankExchangeSockets::Create(
    std::unique_ptr<WireSockets> door) {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return ErrnoStatus(errno, "epoll_create1");
  return std::unique_ptr<RankExchangeSockets>(
      new RankExchangeSockets(std::move(door), std::move(epoll)));
}

RankExchangeSockets::RankExchangeSockets(std::unique_ptr<WireSockets> door, UniqueFd epoll)
    : door_(std::move(door)), epoll_(std::move(epoll)) {
  Watch(door_->event_fd());
}

void RankExchangeSockets::Watch(int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
}

void RankExchangeSockets::Unwatch(int fd) {
  if (fd >= 0) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

void RankExchangeSockets::Advance() {
  for (WireSockets::Event& event : door_->Take()) {
    events_[event.wire_id].push_back(std::move(event));
  }
}

void RankExchangeSockets::Close(std::uint64_t wire_id) {
  door_->Close(wire_id);
  events_.erase(wire_id);
}

std::vector<WireSockets::Event> RankExchangeSockets::TakeEvents(std::uint64_t wire_id) {
  const auto found = events_.find(wire_id);
  if (found == events_.end()) return {};
  std::vector<WireSockets::Event> taken = std::move(found->second);
  events_.erase(found);
  return taken;
}

}  // namespace ringd
