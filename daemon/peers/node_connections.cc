#include "daemon/peers/node_connections.h"

#include <fcntl.h>
#include <sys/socket.h>

namespace ringd {
namespace {

// A number that no other socket has had or gets; 0 if the descriptor is closed, or no socket's.
// Other than fstat, the question reaches no file system: a number that gRPC has closed may be
// anybody's file by now.
std::uint64_t SocketCookie(int fd) noexcept {
  std::uint64_t cookie = 0;
  socklen_t length = sizeof(cookie);
  return ::getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &length) == 0 ? cookie : 0;
}

}  // namespace

UniqueFd NodeConnections::Add(Arrival arrival, Clock::time_point now) {
  Connection connection;
  connection.own = UniqueFd(::fcntl(arrival.socket.get(), F_DUPFD_CLOEXEC, 0));
  connection.cookie = SocketCookie(connection.own.get());
  if (connection.cookie == 0) {
    connection.own.Reset();
    arrival.socket.Reset();
    released_(arrival.user);
    return {};
  }
  connection.token = std::move(arrival.token);
  connection.job = arrival.job;
  connection.user = arrival.user;
  connection.from = std::move(arrival.from);
  connection.served = arrival.socket.get();
  connection.due = now + patience_.call;
  MutexLock lock(mutex_);
  const ConnectionId id(++last_id_);
  tokens_.insert_or_assign(connection.token, id);
  connections_.emplace(id, std::move(connection));
  return std::move(arrival.socket);
}

std::optional<NodeConnections::Begun> NodeConnections::Begin(const std::string& token) {
  MutexLock lock(mutex_);
  const auto found = tokens_.find(token);
  if (found == tokens_.end()) return std::nullopt;
  const auto place = connections_.find(found->second);
  tokens_.erase(found);
  Connection& connection = place->second;
  connection.due = Clock::time_point::max();
  return Begun{place->first, connection.job, std::move(connection.from)};
}

void NodeConnections::End(ConnectionId connection, Clock::time_point now) {
  MutexLock lock(mutex_);
  const auto place = connections_.find(connection);
  if (place != connections_.end()) place->second.due = now + patience_.close;
}

bool NodeConnections::Sweep(Clock::time_point now) {
  std::vector<uid_t> released;
  bool is_left = false;
  {
    MutexLock lock(mutex_);
    for (auto place = connections_.begin(); place != connections_.end();) {
      Connection& connection = place->second;
      if (connection.due == Clock::time_point::max()) {
        ++place;
        continue;
      }
      if (SocketCookie(connection.served) != connection.cookie) {
        released.push_back(connection.user);
        tokens_.erase(connection.token);
        place = connections_.erase(place);
        continue;
      }
      is_left = true;
      if (!connection.shut && connection.due <= now) {
        // gRPC sees the end of the connection and closes it.
        ::shutdown(connection.own.get(), SHUT_RDWR);
        connection.shut = true;
        tokens_.erase(connection.token);
      }
      ++place;
    }
  }
  for (const uid_t user : released) released_(user);
  return is_left;
}

void NodeConnections::Clear() {
  MutexLock lock(mutex_);
  connections_.clear();
  tokens_.clear();
}

}  // namespace ringd
