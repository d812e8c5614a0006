// Answers gRPC calls of those who are not admitted, so that they learn why.
#ifndef RINGD_DAEMON_RPC_REFUSING_SERVER_H_
#define RINGD_DAEMON_RPC_REFUSING_SERVER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "daemon/rpc/refused_connection.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/base/unique_fd.h"
#include "proto/base/waking_epoll.h"

namespace ringd {

// Every call on its connections ends with PERMISSION_DENIED and the settings that would admit the
// caller. (Closing the connection instead makes clients try again until their deadline and say
// nothing.) No byte of theirs gets into gRPC. A thread, ringd-refuses, serves all; each connection
// has kPatience, and who does not read what it is sent has less.
//
// Thread safety: all methods from any thread; Stop one at a time.
// Ownership: of the connections.
class RefusingServer {
 public:
  static constexpr std::size_t kMostConnections = 64;
  static constexpr std::chrono::seconds kPatience{3};

  //   What the kernel says.
  static absl::StatusOr<std::unique_ptr<RefusingServer>> Start();
  ~RefusingServer();  // Stop

  // `socket` is connected. It is closed at once if there are as many as there may be. Does not
  // block.
  void AddConnection(UniqueFd socket) ABSL_LOCKS_EXCLUDED(mutex_);

  // Closes all connections, and those that are still to come. Idempotent.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Connection {
    explicit Connection(UniqueFd accepted);
    UniqueFd socket;
    RefusedConnection protocol;
    Clock::time_point deadline = Clock::now() + kPatience;
  };
  using Connections = std::map<std::uint64_t, std::unique_ptr<Connection>>;

  explicit RefusingServer(WakingEpoll epoll);
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  // False: it is over.
  static bool Serve(Connection& connection);
  static bool Send(Connection& connection);
  // Closes it; the other end sees that, whoever else has the socket.
  void End(std::uint64_t key) ABSL_LOCKS_EXCLUDED(mutex_);
  void EndLate() ABSL_LOCKS_EXCLUDED(mutex_);
  int MillisecondsToNextDeadline() ABSL_LOCKS_EXCLUDED(mutex_);

  const WakingEpoll epoll_;  // woken by Stop, and for new deadlines
  Mutex mutex_;
  Connections connections_ ABSL_GUARDED_BY(mutex_);  // in order of arrival, so of deadlines
  std::uint64_t last_key_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_RPC_REFUSING_SERVER_H_
