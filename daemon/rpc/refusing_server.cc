#include "daemon/rpc/refusing_server.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "daemon/sessions/nudges.h"

namespace ringd {
namespace {

constexpr std::uint64_t kWakeKey = 0;
constexpr std::size_t kReadBytes = std::size_t{16} << 10;
// A wait has a deadline, also without connections.
constexpr auto kLongestWait = std::chrono::minutes(1);
constexpr absl::string_view kWhy =
    "this user is not admitted by this ringd; its settings allowed_users and allowed_groups would "
    "admit them. (Or the system's user database has not said in time which groups they are in: "
    "ringd's log tells.) Without it: ringctl run -n RANKS -- COMMAND";

}  // namespace

RefusingServer::Connection::Connection(UniqueFd accepted)
    : socket(std::move(accepted)), protocol(kWhy) {}

absl::StatusOr<std::unique_ptr<RefusingServer>> RefusingServer::Start() {
  absl::StatusOr<WakingEpoll> epoll = WakingEpoll::Create(kWakeKey);
  if (!epoll.ok()) return epoll.status();
  std::unique_ptr<RefusingServer> server(new RefusingServer(*std::move(epoll)));
  server->thread_ = std::thread(&RefusingServer::Run, server.get());
  ::pthread_setname_np(server->thread_.native_handle(), "ringd-refuses");
  return server;
}

RefusingServer::RefusingServer(WakingEpoll epoll) : epoll_(std::move(epoll)) {}

RefusingServer::~RefusingServer() { Stop(); }

void RefusingServer::AddConnection(UniqueFd socket) {
  auto connection = std::make_unique<Connection>(std::move(socket));
  const MutexLock lock(mutex_);
  if (stopping_ || connections_.size() >= kMostConnections) {
    ::shutdown(connection->socket.get(), SHUT_RDWR);
    return;
  }
  const std::uint64_t key = ++last_key_;
  const int fd = connection->socket.get();
  const bool is_first = connections_.empty();
  connections_.emplace(key, std::move(connection));
  if (!epoll_.Watch(fd, EPOLLIN | EPOLLRDHUP, key)) {
    ::shutdown(fd, SHUT_RDWR);
    connections_.erase(key);
    return;
  }
  // The thread sleeps without this one's deadline.
  if (is_first) epoll_.Wake();
}

void RefusingServer::Stop() {
  if (!thread_.joinable()) return;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  epoll_.Wake();
  thread_.join();
}

void RefusingServer::Run() {
  std::array<epoll_event, 64> events;
  // What clients send along, and nobody here receives, is closed on this thread.
  Nudges nudges;
  for (;;) {
    nudges.Set(false);
    const int count = ::epoll_wait(epoll_.fd(), events.data(), static_cast<int>(events.size()),
                                   MillisecondsToNextDeadline());
    nudges.Set(true);
    for (int i = 0; i < count; ++i) {
      const std::uint64_t key = events[static_cast<std::size_t>(i)].data.u64;
      if (key == kWakeKey) {
        epoll_.TakeWake();
        continue;
      }
      Connection* connection = nullptr;
      {
        const MutexLock lock(mutex_);
        const auto found = connections_.find(key);
        if (found != connections_.end()) connection = found->second.get();
      }
      // Nobody but this thread ends it.
      if (connection != nullptr && !Serve(*connection)) End(key);
    }
    EndLate();
    const MutexLock lock(mutex_);
    if (stopping_ && connections_.empty()) return;
  }
}

bool RefusingServer::Serve(Connection& connection) {
  std::array<char, kReadBytes> bytes;
  const ssize_t count = ::recv(connection.socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (count < 0) return errno == EAGAIN || errno == EINTR;
  if (count == 0) return false;
  const bool goes_on =
      connection.protocol.Take(absl::string_view(bytes.data(), static_cast<std::size_t>(count)));
  return Send(connection) && goes_on;
}

bool RefusingServer::Send(Connection& connection) {
  std::string& output = connection.protocol.output();
  if (output.empty()) return true;
  ssize_t sent = 0;
  do {
    sent =
        ::send(connection.socket.get(), output.data(), output.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  // There is room for all that a connection is ever sent, if it is read.
  const bool all = sent == static_cast<ssize_t>(output.size());
  output.clear();
  return all;
}

void RefusingServer::End(std::uint64_t key) {
  std::unique_ptr<Connection> ended;
  {
    const MutexLock lock(mutex_);
    const auto found = connections_.find(key);
    if (found == connections_.end()) return;
    ended = std::move(found->second);
    connections_.erase(found);
  }
  // The attach listener has a second descriptor.
  epoll_.Unwatch(ended->socket.get());
  ::shutdown(ended->socket.get(), SHUT_RDWR);
}

void RefusingServer::EndLate() {
  const Clock::time_point now = Clock::now();
  for (;;) {
    std::uint64_t key = 0;
    {
      const MutexLock lock(mutex_);
      if (connections_.empty()) return;
      const auto& [first, connection] = *connections_.begin();
      if (!stopping_ && connection->deadline > now) return;
      key = first;
    }
    End(key);
  }
}

int RefusingServer::MillisecondsToNextDeadline() {
  const Clock::time_point now = Clock::now();
  const MutexLock lock(mutex_);
  Clock::time_point next = now + kLongestWait;
  if (!connections_.empty()) next = std::min(next, connections_.begin()->second->deadline);
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - now);
  return static_cast<int>(std::max<std::int64_t>(left.count(), 0));
}

}  // namespace ringd
