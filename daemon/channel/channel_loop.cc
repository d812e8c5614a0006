#include "daemon/channel/channel_loop.h"

#include <pthread.h>
#include <sys/epoll.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <utility>
#include <vector>

#include "daemon/sessions/nudges.h"
#include "proto/base/errno_status.h"

namespace ringd {
namespace {

constexpr std::uint64_t kWakeKey = 0;
constexpr std::size_t kTurnBytes = std::size_t{256} << 10;
// Until descriptors are sent again of which the kernel had too many on their way.
constexpr int kFdPauseMs = 20;

}  // namespace

absl::StatusOr<std::unique_ptr<ChannelLoop>> ChannelLoop::Start(const std::string& name,
                                                                IsolatedExecutor* isolated) {
  absl::StatusOr<WakingEpoll> epoll = WakingEpoll::Create(kWakeKey);
  if (!epoll.ok()) return epoll.status();
  std::unique_ptr<ChannelLoop> loop(new ChannelLoop(*std::move(epoll), isolated));
  loop->thread_ = std::thread(&ChannelLoop::Run, loop.get());
  ::pthread_setname_np(loop->thread_.native_handle(), name.c_str());
  return loop;
}

ChannelLoop::ChannelLoop(WakingEpoll epoll, IsolatedExecutor* isolated)
    : epoll_(std::move(epoll)), isolated_(isolated) {}

ChannelLoop::~ChannelLoop() {
  epoll_.Wake();
  if (thread_.joinable()) thread_.join();
  const MutexLock lock(mutex_);
  for (auto& [key, entry] : entries_) entry->channel->Close();
}

absl::StatusOr<std::shared_ptr<Channel>> ChannelLoop::Add(UniqueFd socket, ChannelEvents events,
                                                          ChannelLimits limits) {
  auto entry = std::make_shared<Entry>();
  entry->events = std::move(events);
  const MutexLock lock(mutex_);
  const std::uint64_t key = ++last_key_;
  const int fd = socket.get();
  const auto await = [this, key, fd] { Await(key, fd, /*writing=*/true); };
  if (isolated_ == nullptr) {
    entry->channel = std::make_shared<Channel>(std::move(socket), limits, await);
  } else {
    const auto discard = [isolated = isolated_](std::vector<UniqueFd> fds) {
      isolated->Discard(std::move(fds));
    };
    // Its socket's last close is that of all that was sent through it and not read.
    entry->channel =
        std::shared_ptr<Channel>(new Channel(std::move(socket), limits, await, discard),
                                 [isolated = isolated_](Channel* gone) {
                                   // What it has not sent is to be closed here, not by the task.
                                   gone->Close();
                                   isolated->Destroy(std::shared_ptr<const Channel>(gone));
                                 });
  }
  if (!epoll_.Watch(fd, EPOLLIN, key)) return ErrnoStatus(errno, "epoll_ctl");
  return entries_.emplace(key, std::move(entry)).first->second->channel;
}

void ChannelLoop::Await(std::uint64_t key, int socket, bool writing) const noexcept {
  epoll_event event{};
  event.events = EPOLLIN;
  if (writing) event.events |= EPOLLOUT;
  event.data.u64 = key;
  ::epoll_ctl(epoll_.fd(), EPOLL_CTL_MOD, socket, &event);
}

void ChannelLoop::Run() {
  std::array<epoll_event, 64> events;
  std::unique_ptr<Nudges> nudges;
  if (isolated_ != nullptr) nudges = std::make_unique<Nudges>();
  for (;;) {
    const int pause = too_many_fds_.empty() ? -1 : kFdPauseMs;
    const int count =
        ::epoll_wait(epoll_.fd(), events.data(), static_cast<int>(events.size()), pause);
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<std::size_t>(i)];
      if (event.data.u64 == kWakeKey) return;
      Serve(event.data.u64, event.events, nudges.get());
    }
    if (!too_many_fds_.empty() && Clock::now() >= try_again_at_) {
      for (const std::uint64_t key : std::exchange(too_many_fds_, {})) {
        Serve(key, EPOLLOUT, nudges.get());
      }
    }
  }
}

void ChannelLoop::Serve(std::uint64_t key, std::uint32_t happened, Nudges* nudges) {
  std::shared_ptr<Entry> entry;
  {
    const MutexLock lock(mutex_);
    const auto found = entries_.find(key);
    if (found == entries_.end()) return;
    entry = found->second;
  }
  Channel& channel = *entry->channel;
  if ((happened & EPOLLOUT) != 0) Flush(key, channel);
  if ((happened & ~EPOLLOUT) == 0) return;
  const absl::Status status = Read(*entry, nudges);
  if (status.ok()) return;
  channel.Close();
  epoll_.Unwatch(channel.socket());
  {
    const MutexLock lock(mutex_);
    entries_.erase(key);
  }
  entry->events.on_end(status);
}

absl::Status ChannelLoop::Read(const Entry& entry, Nudges* nudges) {
  if (nudges == nullptr) return entry.channel->Read(kTurnBytes, entry.events.on_frame);
  // Where there is no room for descriptors that were sent, the kernel closes them as we read: here.
  nudges->Set(true);
  std::vector<ChannelFrame> frames;
  absl::Status status = entry.channel->Read(
      kTurnBytes, [&frames](ChannelFrame frame) { frames.push_back(std::move(frame)); });
  nudges->Set(false);
  for (ChannelFrame& frame : frames) entry.events.on_frame(std::move(frame));
  return status;
}

void ChannelLoop::Flush(std::uint64_t key, Channel& channel) {
  const Channel::Flushed done = channel.Flush();
  if (done == Channel::Flushed::kSocketFull) return Await(key, channel.socket(), /*writing=*/true);
  Await(key, channel.socket(), /*writing=*/false);
  if (done == Channel::Flushed::kTooManyFds) {
    if (too_many_fds_.empty()) {
      try_again_at_ = Clock::now() + std::chrono::milliseconds(kFdPauseMs);
    }
    too_many_fds_.insert(key);
    return;
  }
  // Somebody may have begun to wait in between.
  if (channel.WaitsToSend()) Await(key, channel.socket(), /*writing=*/true);
}

}  // namespace ringd
