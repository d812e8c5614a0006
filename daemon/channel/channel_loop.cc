#include "daemon/channel/channel_loop.h"

#include <pthread.h>
#include <sys/epoll.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <utility>
#include <vector>

#include "daemon/logging/log.h"
#include "daemon/sessions/nudges.h"
#include "proto/base/errno_status.h"

namespace ringd {
namespace {

constexpr std::uint64_t kWakeKey = 0;
// More than a node has engines: each round is one of all channels.
constexpr std::size_t kMostEvents = 512;
// Beside which no flow is numbered.
constexpr std::uint64_t kLoneFlow = std::uint64_t{1} << 63;
// Until descriptors are sent again of which the kernel had too many on their way, or room is asked
// for again.
constexpr int kPauseMs = 20;

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
  const auto await = [this, key, fd, interest = entry->interest] {
    Await(key, fd, *interest, /*writing=*/true);
  };
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

void ChannelLoop::Await(std::uint64_t key, int socket, Interest& interest,
                        bool writing) const noexcept {
  const MutexLock lock(interest.mutex);
  epoll_event event{};
  if (interest.reads) event.events |= EPOLLIN;
  if (writing) event.events |= EPOLLOUT;
  event.data.u64 = key;
  ::epoll_ctl(epoll_.fd(), EPOLL_CTL_MOD, socket, &event);
}

void ChannelLoop::Run() {
  std::array<epoll_event, kMostEvents> events;
  std::unique_ptr<Nudges> nudges;
  if (isolated_ != nullptr) nudges = std::make_unique<Nudges>();
  for (;;) {
    int pause = paused_.empty() ? -1 : kPauseMs;
    if (!unfinished_.empty()) pause = 0;
    const int count =
        ::epoll_wait(epoll_.fd(), events.data(), static_cast<int>(events.size()), pause);
    Happened round = std::exchange(unfinished_, {});
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<std::size_t>(i)];
      if (event.data.u64 == kWakeKey) return;
      round[event.data.u64] |= event.events;
    }
    if (!paused_.empty() && Clock::now() >= try_again_at_) {
      for (const auto& [key, happened] : std::exchange(paused_, {})) round[key] |= happened;
    }
    ServeRound(round, nudges.get());
  }
}

void ChannelLoop::ServeRound(const Happened& round, Nudges* nudges) {
  std::map<std::uint64_t, std::shared_ptr<Entry>> entries;
  {
    const MutexLock lock(mutex_);
    for (const auto& [key, happened] : round) {
      const auto found = entries_.find(key);
      if (found != entries_.end()) entries.insert(*found);
    }
  }
  std::map<std::uint64_t, Happened> flows;
  for (const auto& [key, entry] : entries) {
    const auto& flow = entry->events.flow;
    flows[flow == nullptr ? kLoneFlow | key : flow()][key] = round.at(key);
  }
  for (const auto& [flow, waiting] : flows) {
    auto next = waiting.begin();
    if (waiting.size() > 1) {
      std::uint64_t& last = last_turns_[flow];
      next = waiting.upper_bound(last);
      if (next == waiting.end()) next = waiting.begin();
      last = next->first;
    } else {
      last_turns_.erase(flow);
    }
    for (const auto& [key, happened] : waiting) {
      if (key != next->first) unfinished_[key] |= happened;
    }
    Serve(next->first, *entries.at(next->first), next->second, nudges);
  }
}

void ChannelLoop::Pause(std::uint64_t key, std::uint32_t events) {
  if (paused_.empty()) try_again_at_ = Clock::now() + std::chrono::milliseconds(kPauseMs);
  paused_[key] |= events;
}

void ChannelLoop::Serve(std::uint64_t key, Entry& entry, std::uint32_t happened, Nudges* nudges) {
  Channel& channel = *entry.channel;
  if ((happened & EPOLLOUT) != 0) Flush(key, entry);
  if ((happened & ~EPOLLOUT) == 0) return;
  const absl::StatusOr<Turn> turn = Read(entry, (happened & (EPOLLHUP | EPOLLERR)) != 0, nudges);
  if (turn.ok()) {
    if (*turn == Turn::kMore) unfinished_[key] |= EPOLLIN;
    if (*turn == Turn::kNoRoom) Pause(key, EPOLLIN);
    if (entry.interest->Set(*turn != Turn::kNoRoom)) AwaitAnew(key, entry);
    return;
  }
  channel.Close();
  epoll_.Unwatch(channel.socket());
  {
    const MutexLock lock(mutex_);
    entries_.erase(key);
  }
  entry.events.on_end(turn.status());
}

bool ChannelLoop::HasRoom(Entry& entry) {
  const std::size_t bytes = entry.channel->next_bytes();
  if (bytes <= kSmallFrame || entry.room != nullptr || entry.events.room == nullptr) return true;
  entry.room = entry.events.room(bytes);
  return entry.room != nullptr;
}

absl::StatusOr<std::size_t> ChannelLoop::Receive(Channel& channel, Nudges* nudges) {
  if (nudges == nullptr) return channel.Receive();
  // Where there is no room for descriptors that were sent, the kernel closes them as we read: here.
  nudges->Set(true);
  absl::StatusOr<std::size_t> received = channel.Receive();
  nudges->Set(false);
  return received;
}

absl::StatusOr<ChannelLoop::Turn> ChannelLoop::Read(Entry& entry, bool hung_up, Nudges* nudges) {
  Channel& channel = *entry.channel;
  const Clock::time_point end = Clock::now() + kTurn;
  for (std::size_t read = 0;;) {
    if (!hung_up && !HasRoom(entry)) return Turn::kNoRoom;
    ChannelFrame frame;
    const absl::StatusOr<bool> taken = channel.Take(frame);
    if (!taken.ok()) return taken.status();
    if (*taken) {
      frame.room = std::exchange(entry.room, nullptr);
      entry.events.on_frame(std::move(frame));
      if (Clock::now() >= end) return Turn::kMore;
      continue;
    }
    if (read >= kTurnBytes) return Turn::kDone;  // the kernel tells if there is more
    const absl::StatusOr<std::size_t> received = Receive(channel, nudges);
    if (!received.ok()) return received.status();
    if (*received == 0) return Turn::kDone;
    read += *received;
  }
}

void ChannelLoop::Flush(std::uint64_t key, Entry& entry) {
  Channel& channel = *entry.channel;
  const Channel::Flushed done = channel.Flush();
  if (done != Channel::Flushed::kTooManyFds) entry.refused_since.reset();
  if (done == Channel::Flushed::kSocketFull) {
    return Await(key, channel.socket(), *entry.interest, /*writing=*/true);
  }
  if (done == Channel::Flushed::kTooManyFds) {
    Await(key, channel.socket(), *entry.interest, /*writing=*/false);
    TellOfRefusal(entry);
    return Pause(key, EPOLLOUT);
  }
  AwaitAnew(key, entry);
}

void ChannelLoop::TellOfRefusal(Entry& entry) {
  const Clock::time_point now = Clock::now();
  if (!entry.refused_since.has_value()) entry.refused_since = now;
  if (now - *entry.refused_since < kRefusalPatience) return;
  entry.refused_since = Clock::time_point::max();  // told
  LogError(
      "descriptors can't be sent, and joins wait: too many are on their way through the Unix "
      "sockets of this user's processes, an engine's perhaps, which nobody takes (RLIMIT_NOFILE)");
}

void ChannelLoop::AwaitAnew(std::uint64_t key, const Entry& entry) const {
  const int socket = entry.channel->socket();
  Await(key, socket, *entry.interest, /*writing=*/false);
  // Somebody may have begun to wait in between.
  if (entry.channel->WaitsToSend()) Await(key, socket, *entry.interest, /*writing=*/true);
}

}  // namespace ringd
