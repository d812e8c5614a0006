// Answers gRPC calls of those who are not admitted, so that they learn why.
#ifndef RINGD_DAEMON_RPC_REFUSING_SERVER_H_
#define RINGD_DAEMON_RPC_REFUSING_SERVER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "proto/base/clock.h"
#include "proto/base/unique_fd.h"

namespace ringd {

// Every call on its connections ends with PERMISSION_DENIED and the settings that would admit the
// caller. (Closing the connection instead makes clients try again until their deadline and say
// nothing.) Connections are closed after a few seconds.
//
// Thread safety: all methods from any thread; AddConnection not after Shutdown.
class RefusingServer {
 public:
  static absl::StatusOr<std::unique_ptr<RefusingServer>> Start();
  ~RefusingServer();

  // `socket` is connected and non-blocking.
  void AddConnection(UniqueFd socket);

  void Shutdown(Clock::time_point deadline);

 private:
  class Impl;
  explicit RefusingServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_RPC_REFUSING_SERVER_H_
