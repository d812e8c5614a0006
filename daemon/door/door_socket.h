// TCP sockets between ringds, as the door opens them.
#ifndef RINGD_DAEMON_DOOR_DOOR_SOCKET_H_
#define RINGD_DAEMON_DOOR_DOOR_SOCKET_H_

#include <sys/socket.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/congestion_control.h"
#include "proto/base/unique_fd.h"

namespace ringd {

// Thread safety: any thread, as below.

struct ListeningSocket {
  UniqueFd fd;          // non-blocking
  std::string address;  // "host:port" with a numeric host and the real port
};

// `address` is host:port; port 0: any. May ask a name server.
//   kInvalidArgument: no such address. Else what the kernel says.
absl::StatusOr<ListeningSocket> ListenForDoor(const std::string& address);

// Whom strangers are counted by: an IPv4 address; of IPv6 the first 64 bits, since whoever has one
// address there has a whole network of them.
std::string SourceOf(const sockaddr_storage& peer);

struct AcceptedSocket {
  UniqueFd fd;         // non-blocking, tuned
  std::string source;  // SourceOf
  std::string whole;   // "10.0.0.2 port 40001"
};

// One connection, tuned as below. Nothing there: an empty descriptor. Else what accept4 left in
// `error`.
AcceptedSocket AcceptOne(int listener, const CongestionControl& congestion_control, int& error);

// Begins to connect; the socket is writable when that has ended, one way or the other. `address`
// has a numeric host, so nothing blocks.
//   kInvalidArgument: it has not, or is no address. Else what the kernel says at once.
absl::StatusOr<UniqueFd> BeginDoorConnection(const std::string& address,
                                             const CongestionControl& congestion_control);
// How it has ended.
absl::Status OutcomeOfDoorConnection(int fd);

}  // namespace ringd

#endif  // RINGD_DAEMON_DOOR_DOOR_SOCKET_H_
