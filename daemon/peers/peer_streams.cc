#include "daemon/peers/peer_streams.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "proto/base/thread_priority.h"
#include "proto/peers/peer_frame.h"

namespace ringd {
namespace {

// Of one stream in one turn: then the next one has its turn.
constexpr int kReadsInTurn = 4;
// If a turn of the thread comes later than it should by so much, this process did not run, or could
// not: nobody is to blame for silence then.
constexpr std::chrono::milliseconds kLateTurn{500};
// epoll's number of the queue of commands; streams begin with 1.
constexpr std::uint64_t kCommands = 0;

}  // namespace

PeerStreams::PeerStreams(const SocketPeerNetworkOptions& options, UniqueFd epoll)
    : options_(options), epoll_(std::move(epoll)), budgets_(options.max_buffered_bytes) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kCommands;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, commands_->event_fd(), &event);
}

void PeerStreams::Start() {
  thread_ = std::thread([this] {
    ::pthread_setname_np(::pthread_self(), "ringd-peers");
    ServeBesideEngine();
    Run();
  });
}

void PeerStreams::Stop() {
  if (!thread_.joinable()) return;
  commands_->Post([this] { stopping_ = true; });
  thread_.join();
}

void PeerStreams::SetEvents(PeerEvents* events) {
  const MutexLock lock(mutex_);
  events_ = events;
}

StreamId PeerStreams::NewId() {
  const MutexLock lock(mutex_);
  return StreamId(++last_id_);
}

bool PeerStreams::Add(StreamId id, Origin origin) {
  const MutexLock lock(mutex_);
  if (events_ == nullptr || refusing_) return false;
  auto entry = std::make_shared<Entry>();
  entry->id = id;
  entry->stream = std::make_shared<PeerStream>(options_.stream, budgets_.Of(origin.user));
  entry->holds = std::make_shared<MessageHolds>(options_.max_unhandled_bytes, commands_);
  entry->origin = std::move(origin);
  entries_.emplace(id, std::move(entry));
  return true;
}

void PeerStreams::Connect(StreamId id, UniqueFd socket) {
  // std::function needs something copyable.
  auto shared = std::make_shared<UniqueFd>(std::move(socket));
  commands_->Post([this, id, shared] {
    const std::shared_ptr<Entry> entry = Find(id);
    if (entry == nullptr) return;
    const Clock::time_point now = Clock::now();
    const int fd = shared->get();
    if (!entry->origin.opened_here) {
      events()->OnNodeConnected(id, entry->origin.job, entry->origin.from);
    }
    entry->stream->Connect(std::move(*shared), now);
    epoll_event event{};
    event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
    event.data.u64 = id.value();
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
      return Lose(*entry, std::strerror(errno));
    }
    next_look_ = std::min<Clock::time_point>(next_look_, now + options_.stream.keepalive_interval);
  });
}

void PeerStreams::EndUnconnected(StreamId id, const absl::Status& why) {
  commands_->Post([this, id, why] {
    const std::shared_ptr<Entry> entry = Find(id);
    if (entry != nullptr && entry->stream->socket() < 0) End(*entry, why);
  });
}

void PeerStreams::Send(StreamId id, bool opened_here, std::string frame) {
  const std::shared_ptr<Entry> entry = Find(id);
  if (entry == nullptr || entry->origin.opened_here != opened_here) return;
  if (entry->stream->Send(std::move(frame))) return;
  commands_->Post([this, id] {
    if (const auto cut = Find(id)) End(*cut, absl::OkStatus());
  });
}

void PeerStreams::Close(StreamId id, const absl::Status& reason) {
  const std::shared_ptr<Entry> entry = Find(id);
  if (entry == nullptr || !entry->stream->Close(reason)) return;
  commands_->Post([this, id] {
    const std::shared_ptr<Entry> closed = Find(id);
    if (closed == nullptr) return;
    if (closed->stream->socket() < 0) return End(*closed, absl::OkStatus());
    next_look_ = Clock::now();  // its time runs
  });
}

std::vector<StreamId> PeerStreams::Refuse() {
  const MutexLock lock(mutex_);
  refusing_ = true;
  std::vector<StreamId> ids;
  for (const auto& [id, entry] : entries_) ids.push_back(id);
  return ids;
}

bool PeerStreams::WaitUntilEmpty(Clock::time_point deadline) {
  const MutexLock lock(mutex_);
  while (!entries_.empty()) {
    if (!emptied_.WaitUntil(mutex_, deadline) && Clock::now() >= deadline) return entries_.empty();
  }
  return true;
}

void PeerStreams::CutAll() {
  commands_->Post([this] {
    for (const auto& entry : All()) End(*entry, absl::CancelledError("ringd has ended"));
  });
}

std::shared_ptr<PeerStreams::Entry> PeerStreams::Find(StreamId id) {
  const MutexLock lock(mutex_);
  const auto found = entries_.find(id);
  return found == entries_.end() ? nullptr : found->second;
}

std::vector<std::shared_ptr<PeerStreams::Entry>> PeerStreams::All() {
  const MutexLock lock(mutex_);
  std::vector<std::shared_ptr<Entry>> all;
  for (const auto& [id, entry] : entries_) all.push_back(entry);
  return all;
}

// ---- the thread
// ----------------------------------------------------------------------------------

void PeerStreams::Run() {
  std::array<epoll_event, kMaxEvents> events;
  Clock::time_point turn = Clock::now();
  while (!stopping_) {
    const Clock::time_point begin = Clock::now();
    const int timeout = MillisecondsToSleep(begin);
    const int count =
        ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout);
    const Clock::time_point now = Clock::now();
    // Since the last turn it worked, and then slept for longer than it wanted.
    const Clock::duration worked = begin - turn;
    const Clock::duration late =
        timeout < 0 ? Clock::duration::zero() : now - begin - std::chrono::milliseconds(timeout);
    if (worked > kLateTurn) ForgiveAll(worked);
    if (late > kLateTurn) ForgiveAll(late);
    turn = now;
    for (int i = 0; i < count; ++i) {
      if (events[i].data.u64 == kCommands) continue;
      const StreamId id(events[i].data.u64);
      if ((events[i].events & EPOLLOUT) != 0) {
        if (const auto entry = Find(id)) entry->stream->Flush();
      }
      if ((events[i].events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) {
        readable_.insert(id);
      }
    }
    commands_->RunAll();
    ReadInTurns(now);
    if (now >= next_look_) LookAfterAll(now);
  }
}

int PeerStreams::MillisecondsToSleep(Clock::time_point now) const {
  if (!readable_.empty() || !commands_->empty()) return 0;
  if (next_look_ == Clock::time_point::max()) return -1;
  if (next_look_ <= now) return 0;
  return static_cast<int>(std::min<std::int64_t>(
      std::chrono::ceil<std::chrono::milliseconds>(next_look_ - now).count(), 60'000));
}

void PeerStreams::ReadInTurns(Clock::time_point now) {
  for (auto place = full_.begin(); place != full_.end();) {
    const std::shared_ptr<Entry> entry = Find(*place);
    if (entry != nullptr && entry->holds->full()) {
      ++place;
      continue;
    }
    if (entry != nullptr) readable_.insert(*place);
    place = full_.erase(place);
  }
  for (const StreamId id : std::vector<StreamId>(readable_.begin(), readable_.end())) {
    const std::shared_ptr<Entry> entry = Find(id);
    if (entry == nullptr || Read(*entry, now)) readable_.erase(id);
  }
}

bool PeerStreams::Read(Entry& entry, Clock::time_point now) {
  for (int i = 0; i < kReadsInTurn; ++i) {
    if (entry.holds->full()) {
      full_.insert(entry.id);
      return true;
    }
    const int fd = entry.stream->socket();
    if (fd < 0) return true;
    const ssize_t got = ::recv(fd, scratch_.data(), scratch_.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return true;
    if (got <= 0) {
      const int error = got < 0 ? errno : entry.stream->broken();
      Lose(entry, error == 0 ? "the other side has closed it" : std::strerror(error));
      return true;
    }
    entry.stream->Heard(now);
    const auto bytes = std::span<const std::byte>(scratch_).first(static_cast<std::size_t>(got));
    entry.last_bytes.Add(bytes);
    bool ended = false;
    const absl::Status status = entry.stream->reader().Feed(
        bytes, [&](PeerFrameKind kind, std::span<const std::byte> payload) {
          ended = !Take(entry, kind, payload);
          return !ended;
        });
    if (!ended && !status.ok()) End(entry, status);
    if (ended || !status.ok()) return true;
  }
  return false;
}

bool PeerStreams::Take(Entry& entry, PeerFrameKind kind, std::span<const std::byte> payload) {
  switch (kind) {
    case PeerFrameKind::kPing:
      entry.stream->Pong();
      return true;
    case PeerFrameKind::kPong:
      return true;
    case PeerFrameKind::kEnd:
      // A node's reason is its own affair, but for the end of its engine.
      End(entry, entry.origin.opened_here ? DecodePeerEnd(payload) : absl::OkStatus());
      return false;
    case PeerFrameKind::kMessage:
      break;
  }
  return entry.origin.opened_here ? Deliver<v1::CoordinatorMessage>(entry, payload)
                                  : Deliver<v1::NodeMessage>(entry, payload);
}

template <typename Message>
bool PeerStreams::Deliver(Entry& entry, std::span<const std::byte> payload) {
  if (entry.stream->closed()) return true;
  Message message;
  if (!message.ParseFromArray(payload.data(), static_cast<int>(payload.size()))) {
    End(entry, absl::InvalidArgumentError("what it sent is no message of ringd's"));
    return false;
  }
  MessageHold hold = entry.holds->Hold(payload.size());
  if constexpr (std::is_same_v<Message, v1::NodeMessage>) {
    events()->OnNodeMessage(entry.id, std::move(message), std::move(hold));
  } else {
    events()->OnCoordinatorMessage(entry.id, std::move(message), std::move(hold));
  }
  return true;
}

void PeerStreams::LookAfterAll(Clock::time_point now) {
  next_look_ = Clock::time_point::max();
  for (const auto& entry : All()) {
    // What has come and is not read, since it is not dealt with, is a sign of life.
    if (full_.contains(entry->id)) entry->stream->Heard(now);
    const PeerStream::Look look = entry->stream->LookAfter(now);
    if (look.over.ok()) {
      next_look_ = std::min(next_look_, look.next);
    } else if (absl::IsDeadlineExceeded(look.over)) {
      End(*entry, look.over);
    } else {
      Lose(*entry, std::string(look.over.message()));
    }
  }
}

void PeerStreams::ForgiveAll(Clock::duration gap) {
  for (const auto& entry : All()) entry->stream->Forgive(gap);
}

void PeerStreams::Lose(const Entry& entry, const std::string& cause) {
  const std::string& whose = entry.origin.host_port;
  if (!entry.origin.opened_here) {
    End(entry, absl::UnavailableError(absl::StrCat("the connection was lost: ", cause)));
  } else if (!entry.stream->ever_heard()) {
    End(entry, absl::UnavailableError(absl::StrCat(
                   "the ringd at ", whose, " let this node in and then said nothing: ", cause)));
  } else {
    End(entry, absl::UnavailableError(
                   absl::StrCat("the connection to the ringd at ", whose, " was lost: ", cause)));
  }
}

void PeerStreams::End(const Entry& entry, const absl::Status& otherwise) {
  const std::shared_ptr<Entry> kept = Find(entry.id);
  if (kept == nullptr) return;
  absl::Status why = kept->stream->closed() ? kept->stream->reason() : otherwise;
  if (const auto obituary = kept->last_bytes.Obituary()) why = *obituary;
  // A coordinator's own word for it is not believed.
  const bool is_here = absl::IsAlreadyExists(why) && kept->stream->socket() < 0;
  kept->stream->Disconnect();
  readable_.erase(kept->id);
  full_.erase(kept->id);
  if (kept->origin.ended != nullptr) kept->origin.ended();
  PeerEvents* const told = events();
  if (!kept->origin.opened_here) {
    told->OnNodeDisconnected(kept->id, std::move(why));
  } else if (is_here) {
    told->OnCoordinatorIsHere(kept->id);
  } else {
    told->OnCoordinatorDisconnected(kept->id, std::move(why));
  }
  const MutexLock lock(mutex_);
  entries_.erase(kept->id);
  if (entries_.empty()) emptied_.NotifyAll();
}

}  // namespace ringd
