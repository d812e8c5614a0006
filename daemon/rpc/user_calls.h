// What the calls of one user may take of ringd.
#ifndef RINGD_DAEMON_RPC_USER_CALLS_H_
#define RINGD_DAEMON_RPC_USER_CALLS_H_

#include <cstddef>

#include "proto/base/counted_places.h"

namespace ringd {

// A client that does not heed gRPC's bound on a connection's calls, or does not read its replies,
// comes up against these. One reply alone may be as long as it likes: gRPC's have a bound.
//
// Thread safety: any thread.
struct UserCalls {
  struct Limits {
    // At once: until ringd has answered and gRPC is done with it.
    std::size_t calls = 4096;
    // Of requests as they lie in memory, which can be many times what was sent: as long.
    std::size_t request_bytes = std::size_t{256} << 20;
    // Of replies that callers have not taken yet.
    std::size_t reply_bytes = std::size_t{256} << 20;
  };

  explicit UserCalls(const Limits& limits)
      : calls(limits.calls), request_bytes(limits.request_bytes), reply_bytes(limits.reply_bytes) {}

  CountedPlaces calls;
  CountedPlaces request_bytes;
  CountedPlaces reply_bytes;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_RPC_USER_CALLS_H_
