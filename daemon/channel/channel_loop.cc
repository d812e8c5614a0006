#include "daemon/channel/channel_loop.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "proto/base/errno_status.h"

namespace ringd {
namespace {

constexpr std::uint64_t kWakeKey = 0;
constexpr std::size_t kTurnBytes = std::size_t{256} << 10;

}  // namespace

absl::StatusOr<std::unique_ptr<ChannelLoop>> ChannelLoop::Start(const std::string& name) {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return ErrnoStatus(errno, "epoll_create1");
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return ErrnoStatus(errno, "eventfd");
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kWakeKey;
  if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake.get(), &event) != 0) {
    return ErrnoStatus(errno, "epoll_ctl");
  }
  std::unique_ptr<ChannelLoop> loop(new ChannelLoop(std::move(epoll), std::move(wake)));
  loop->thread_ = std::thread(&ChannelLoop::Run, loop.get());
  ::pthread_setname_np(loop->thread_.native_handle(), name.c_str());
  return loop;
}

ChannelLoop::ChannelLoop(UniqueFd epoll, UniqueFd wake)
    : epoll_(std::move(epoll)), wake_(std::move(wake)) {}

ChannelLoop::~ChannelLoop() {
  const std::uint64_t one = 1;
  static_cast<void>(!::write(wake_.get(), &one, sizeof(one)));
  if (thread_.joinable()) thread_.join();
}

absl::StatusOr<std::shared_ptr<Channel>> ChannelLoop::Add(UniqueFd socket, ChannelEvents events,
                                                          ChannelLimits limits) {
  auto entry = std::make_shared<Entry>();
  entry->events = std::move(events);
  const MutexLock lock(mutex_);
  const std::uint64_t key = ++last_key_;
  const int fd = socket.get();
  entry->channel = std::make_shared<Channel>(std::move(socket), limits,
                                             [this, key, fd] { Watch(key, fd, /*writing=*/true); });
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = key;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    return ErrnoStatus(errno, "epoll_ctl");
  }
  return entries_.emplace(key, std::move(entry)).first->second->channel;
}

void ChannelLoop::Watch(std::uint64_t key, int socket, bool writing) const noexcept {
  epoll_event event{};
  event.events = EPOLLIN;
  if (writing) event.events |= EPOLLOUT;
  event.data.u64 = key;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, socket, &event);
}

void ChannelLoop::Run() {
  std::array<epoll_event, 64> events;
  for (;;) {
    const int count =
        ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), -1);
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<std::size_t>(i)];
      if (event.data.u64 == kWakeKey) return;
      Serve(event.data.u64, event.events);
    }
  }
}

void ChannelLoop::Serve(std::uint64_t key, std::uint32_t happened) {
  std::shared_ptr<Entry> entry;
  {
    const MutexLock lock(mutex_);
    const auto found = entries_.find(key);
    if (found == entries_.end()) return;
    entry = found->second;
  }
  Channel& channel = *entry->channel;
  if ((happened & EPOLLOUT) != 0) {
    channel.Flush();
    if (!channel.WaitsToSend()) {
      Watch(key, channel.socket(), /*writing=*/false);
      // Somebody may have begun to wait in between.
      if (channel.WaitsToSend()) Watch(key, channel.socket(), /*writing=*/true);
    }
  }
  if ((happened & ~EPOLLOUT) == 0) return;
  const absl::Status status = channel.Read(kTurnBytes, entry->events.on_frame);
  if (status.ok()) return;
  channel.Close();
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, channel.socket(), nullptr);
  {
    const MutexLock lock(mutex_);
    entries_.erase(key);
  }
  entry->events.on_end(status);
}

}  // namespace ringd
