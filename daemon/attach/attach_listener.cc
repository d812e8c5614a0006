#include "daemon/attach/attach_listener.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/logging/log.h"
#include "daemon/sessions/nudges.h"
#include "proto/base/errno_status.h"

namespace ringd {
namespace {

// Connections taken in before those under way get their turn.
constexpr int kAcceptsPerTurn = 64;
constexpr Clock::duration kLongestWait = std::chrono::seconds(10);
constexpr Clock::duration kAcceptPause = std::chrono::milliseconds(100);
constexpr std::uint32_t kLogLines = 20;
constexpr Clock::duration kLogPeriod = std::chrono::seconds(10);

// `status` of listening, with what to do about it.
absl::Status ExplainNoSocket(const absl::Status& status) {
  if (!absl::IsNotFound(status) && !absl::IsPermissionDenied(status)) return status;
  return absl::Status(
      status.code(),
      absl::StrCat(status.message(), "; name a folder that is there and that this user may write ",
                   "to: --socket FOLDER/ringd.sock (/run/ringd is made by systemd's unit)"));
}

}  // namespace

AttachListener::AttachListener(const Config& config, AttachCallbacks callbacks, Admission admission)
    : path_(config.socket),
      mode_(static_cast<mode_t>(config.socket_mode)),
      own_user_(::geteuid()),
      handshake_timeout_(config.handshake_timeout),
      sizes_{config.arena_bytes, static_cast<std::uint32_t>(config.submission_ring_capacity)},
      callbacks_(std::move(callbacks)),
      admission_(std::make_shared<Admission>(std::move(admission))),
      log_limiter_(kLogLines, kLogPeriod),
      accept_limiter_(kLogLines, kLogPeriod),
      questions_(callbacks_.ask_user, [this] { epoll_.Wake(); }) {}

absl::StatusOr<std::unique_ptr<AttachListener>> AttachListener::Start(const Config& config,
                                                                      AttachCallbacks callbacks) {
  absl::StatusOr<Admission> admission = Admission::Create(config);
  if (!admission.ok()) return admission.status();
  std::unique_ptr<AttachListener> listener(
      new AttachListener(config, std::move(callbacks), *std::move(admission)));
  if (absl::Status status = listener->Open(); !status.ok()) return status;
  listener->thread_ = std::thread(&AttachListener::Run, listener.get());
  pthread_setname_np(listener->thread_.native_handle(), "ringd-attach");
  return listener;
}

AttachListener::~AttachListener() { Stop(); }

absl::Status AttachListener::Open() {
  absl::StatusOr<WakingEpoll> epoll = WakingEpoll::Create(kWakeKey);
  if (!epoll.ok()) return epoll.status();
  epoll_ = *std::move(epoll);
  queue_empty_at_ = Clock::now();
  absl::StatusOr<UniqueFd> listener = ListenUnix(path_, mode_);
  if (!listener.ok()) return ExplainNoSocket(listener.status());
  listener_ = *std::move(listener);
  RefuseDescriptors(listener_.get());  // for the connections, too
  struct stat info {};
  if (::lstat(path_.c_str(), &info) == 0) {
    socket_device_ = info.st_dev;
    socket_inode_ = info.st_ino;
  }
  if (!epoll_.Watch(listener_.get(), EPOLLIN, kListenKey)) return ErrnoStatus(errno, "epoll_ctl");
  return absl::OkStatus();
}

void AttachListener::Use(std::shared_ptr<Admission> renewed) {
  MutexLock lock(admission_mutex_);
  admission_ = std::move(renewed);
  admission_->TakeEffect();
}

std::shared_ptr<Admission> AttachListener::admission() {
  MutexLock lock(admission_mutex_);
  return admission_;
}

void AttachListener::Stop() {
  if (!thread_.joinable()) return;
  stopping_.store(true, std::memory_order_relaxed);
  epoll_.Wake();
  thread_.join();
  listener_.Reset();
  // Another ringd may have put its own socket there meanwhile.
  struct stat info {};
  if (::lstat(path_.c_str(), &info) == 0 && info.st_dev == socket_device_ &&
      info.st_ino == socket_inode_) {
    ::unlink(path_.c_str());
  }
}

void AttachListener::Run() {
  std::array<epoll_event, 64> events;
  // What clients send along, and nobody here receives, is closed on this thread.
  Nudges nudges;
  for (;;) {
    nudges.Set(false);
    const Clock::time_point before = Clock::now();
    const int count = ::epoll_wait(epoll_.fd(), events.data(), static_cast<int>(events.size()),
                                   MillisecondsToNextDeadline());
    nudges.Set(true);
    bool anybody_waits =
        accept_again_ != Clock::time_point::max() || count == static_cast<int>(events.size());
    for (int i = 0; i < count; ++i) {
      const std::uint64_t key = events[static_cast<std::size_t>(i)].data.u64;
      anybody_waits = anybody_waits || key == kListenKey;
      if (key == kWakeKey) {
        epoll_.TakeWake();
        if (stopping_.load(std::memory_order_relaxed)) {
          pending_.clear();
          grpc_connections_.clear();
          session_connections_.clear();
          return;
        }
        ServeParked();
      } else if (key == kListenKey) {
        AcceptAll();
      } else if (!EndGrpcConnection(key) && !EndSessionConnection(key)) {
        Advance(key);
      }
    }
    if (count >= 0 && !anybody_waits) queue_empty_at_ = before;
    ResumeAccepting();
    DropExpired();
  }
}

// Our interest outlasts our descriptor as long as gRPC has its own, and would wake us all the time.
bool AttachListener::EndGrpcConnection(std::uint64_t key) {
  const auto found = grpc_connections_.find(key);
  if (found == grpc_connections_.end()) return false;
  epoll_.Unwatch(found->second.watch.get());
  grpc_connections_.erase(found);
  return true;
}

bool AttachListener::EndSessionConnection(std::uint64_t key) {
  auto found = session_connections_.find(key);
  if (found == session_connections_.end()) found = session_connections_.find(key - 1);
  if (found == session_connections_.end()) return false;
  SessionConnection& ended = found->second;
  epoll_.Unwatch(ended.watch.get());
  if (ended.process.valid()) epoll_.Unwatch(ended.process.get());
  ::shutdown(ended.watch.get(), SHUT_RDWR);  // gRPC's thread closes its own then
  session_connections_.erase(found);
  return true;
}

void AttachListener::AcceptAll() {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    const Clock::time_point before = Clock::now();
    UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.valid()) {
      Add(std::move(socket));
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
      PauseAccepting(errno);
      return;
    } else if (errno == EAGAIN) {
      queue_empty_at_ = before;
      return;
    } else if (errno != EINTR && errno != ECONNABORTED) {
      return;
    }
  }
}

// The waiting connection keeps the socket readable: without a pause this would be a busy loop.
void AttachListener::PauseAccepting(int error) {
  const std::string why(ErrnoStatus(error, absl::StrCat("accepting on ", path_)).message());
  // Whatever strangers have logged.
  if (const auto suppressed = accept_limiter_.Pass(Clock::now())) {
    LogError(*suppressed == 0 ? why : absl::StrCat(why, " (", *suppressed, " times more before)"));
  }
  if (!pending_.empty()) DropOnePending(absl::StrCat("closed, to go on: ", why));
  epoll_.Unwatch(listener_.get());
  accept_again_ = Clock::now() + kAcceptPause;
}

void AttachListener::ResumeAccepting() {
  if (Clock::now() < accept_again_) return;
  accept_again_ = epoll_.Watch(listener_.get(), EPOLLIN, kListenKey) ? Clock::time_point::max()
                                                                     : Clock::now() + kAcceptPause;
}

void AttachListener::Add(UniqueFd socket) {
  const absl::StatusOr<PeerCredentials> peer = GetPeerCredentials(socket.get());
  if (!peer.ok()) return;
  // The pid of one that has ended may be another user's by now.
  const bool own = peer->uid == own_user_;
  if (callbacks_.is_engine(peer->pid, own ? queue_empty_at_ : Clock::time_point::max())) {
    return LogConnection("closed: it is an engine, which has no business on ringd's socket", *peer);
  }
  if (peer->uid != 0 && peer->uid != own_user_) {
    // Those that have said what they want wait for the user database, not for their owner.
    const auto is_theirs = [&](const auto& entry) {
      return entry.second.peer().uid == peer->uid && !entry.second.parked();
    };
    if (std::count_if(pending_.begin(), pending_.end(), is_theirs) >=
        static_cast<std::ptrdiff_t>(kMaxPendingPerUser)) {
      Drop(std::find_if(pending_.begin(), pending_.end(), is_theirs),
           absl::StrCat("closed: uid ", peer->uid, " has ", kMaxPendingPerUser,
                        " unfinished handshakes, as many as one user may have"));
    }
  }
  if (pending_.size() >= kMaxPending) {
    DropOnePending(
        absl::StrCat("closed: all ", kMaxPending, " places for unfinished handshakes are taken"));
  }
  const std::uint64_t key = next_key_++;
  const int fd = socket.get();
  pending_.emplace(key,
                   PendingConnection(std::move(socket), *peer, Clock::now() + handshake_timeout_));
  // Edge-triggered: bytes that only were looked at would wake a level-triggered wait for ever.
  if (!epoll_.Watch(fd, EPOLLIN | EPOLLRDHUP | EPOLLET, key)) pending_.erase(key);
}

void AttachListener::DropOnePending(absl::string_view why) {
  const std::shared_ptr<Admission> admission = this->admission();
  std::map<uid_t, std::size_t> by_user;
  for (const auto& [key, connection] : pending_) ++by_user[connection.peer().uid];
  // One person may have many user numbers (subordinate ones), so among users with equally many
  // those lose first who are not known to be admitted; the first of equals is the oldest.
  const auto rank = [&](const auto& entry) {
    const PeerCredentials& peer = entry.second.peer();
    return std::tuple(peer.uid != 0, by_user.at(peer.uid), !admission->AdmitsAtSight(peer));
  };
  Drop(std::max_element(pending_.begin(), pending_.end(),
                        [&](const auto& a, const auto& b) { return rank(a) < rank(b); }),
       why);
}

void AttachListener::Drop(std::map<std::uint64_t, PendingConnection>::iterator victim,
                          absl::string_view why) {
  LogConnection(why, victim->second.peer());
  pending_.erase(victim);
}

void AttachListener::DropExpired() {
  const Clock::time_point now = Clock::now();
  for (auto next = pending_.begin(); next != pending_.end();) {
    const auto found = next++;
    if (found->second.deadline() > now) continue;
    PendingConnection connection = std::move(found->second);
    pending_.erase(found);
    if (connection.parked()) {
      EndWait(std::move(connection));
    } else {
      LogConnection("closed because its handshake took longer than handshake_timeout",
                    connection.peer());
    }
  }
}

int AttachListener::MillisecondsToNextDeadline() const {
  Clock::time_point next = accept_again_;
  for (const auto& [key, connection] : pending_) next = std::min(next, connection.deadline());
  // Not for ever, so that it is known of late that nobody waited (queue_empty_at_).
  next = std::min(next, Clock::now() + kLongestWait);
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now());
  return static_cast<int>(std::max<std::int64_t>(left.count(), 0));
}

void AttachListener::Advance(std::uint64_t key) {
  const auto found = pending_.find(key);
  if (found == pending_.end()) return;  // dropped while its event waited in the batch
  if (found->second.parked()) return;
  const PendingConnection::Progress progress = found->second.Read();
  switch (progress) {
    case PendingConnection::Progress::kWaiting:
      return;
    case PendingConnection::Progress::kGrpc:
    case PendingConnection::Progress::kAttach:
      return ServeOrPark(found, progress);
    case PendingConnection::Progress::kUnknown:
      return Drop(found, "closed because it speaks neither gRPC nor attach");
    case PendingConnection::Progress::kClosed:
      pending_.erase(found);
      return;
  }
}

void AttachListener::LogConnection(absl::string_view what, const PeerCredentials& peer) {
  const std::optional<std::uint64_t> suppressed = log_limiter_.Pass(Clock::now());
  if (!suppressed.has_value()) return;
  std::string line = absl::StrCat("connection of pid ", peer.pid, ", uid ", peer.uid, ": ", what);
  if (*suppressed > 0) {
    absl::StrAppend(&line, " (", *suppressed, " similar lines were left out before)");
  }
  LogWarning(line);
}

}  // namespace ringd
