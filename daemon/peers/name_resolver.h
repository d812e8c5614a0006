// The addresses behind host names, without anybody waiting for a name server.
#ifndef RINGD_DAEMON_PEERS_NAME_RESOLVER_H_
#define RINGD_DAEMON_PEERS_NAME_RESOLVER_H_

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/config/host_port.h"
#include "proto/base/clock.h"

namespace ringd {

// A name server may take half a minute, and a user may name hosts whose name server is his own. So
// each question has a thread of its own, at most kMostAtOnce for each user; the user's further ones
// wait behind these.
//
// Thread safety: any thread. No method blocks but Stop, which waits for callbacks that are under
//   way, and for nothing else.
class NameResolver {
 public:
  // Numeric, "host:port", in the order in which they are to be tried; not empty.
  //   kDeadlineExceeded: the name was not known, or no name server answered; the message says
  //     which.
  using Done = std::function<void(absl::StatusOr<std::vector<std::string>>)>;

  static constexpr std::size_t kMostAtOnce = 8;
  // Further addresses of a name are left out.
  static constexpr std::size_t kMostAddresses = 16;

  NameResolver();
  ~NameResolver();  // as Stop

  // Calls `done` once: at once for a numeric host, else on a thread of the resolver; not at all
  // after Stop. A name that is not known is asked for again until the deadline.
  void Resolve(uid_t user, const HostPort& address, Clock::time_point deadline, Done done);
  void Stop();

 private:
  struct State;
  // Shared with threads that still wait for a name server.
  const std::shared_ptr<State> state_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_PEERS_NAME_RESOLVER_H_
