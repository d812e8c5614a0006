// Sockets of the fast path, as ringd opens them.
#ifndef RINGD_DAEMON_FAST_PATH_FAST_PATH_SOCKET_H_
#define RINGD_DAEMON_FAST_PATH_FAST_PATH_SOCKET_H_

#include <cstddef>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/congestion_control.h"
#include "proto/base/unique_fd.h"

namespace ringd {

// Addresses are "host:port" with a numeric host, so that nothing here asks a name server: no function blocks.
//
// Thread safety: any thread.

// Whether `address` could be one: the other nodes' are input.
bool IsFastPathAddress(const std::string& address);

// Listens on `host`, any port; `address` is set to where.
//   kInvalidArgument: the host is not numeric. Else what the kernel says.
absl::StatusOr<UniqueFd> ListenForFastPath(const std::string& host, std::string& address);

// Begins to connect, tuned as below; the socket is writable when that has ended, one way or the other.
//   kInvalidArgument: no such address. Else what the kernel says at once.
absl::StatusOr<UniqueFd> BeginFastPathConnection(const std::string& address,
                                                 const CongestionControl& congestion_control);
// How it has ended.
absl::Status OutcomeOfConnecting(int fd);

// For one that was accepted: sends at once, is not forgotten by firewalls, ends when the other node
// does not acknowledge for 30 s, and has room for all that can be under way.
void TuneFastPathSocket(int fd, const CongestionControl& congestion_control) noexcept;

// Makes it one that ranks may wait for, a little.
void HandOverFastPathSocket(int fd) noexcept;

// Receives what is missing of `bytes`, of which `filled` are there. kUnavailable: the other side has closed it, or
// it broke. OK with filled < bytes.size(): more has to come.
absl::Status ReceiveSome(int fd, std::span<std::byte> bytes, std::size_t& filled);
// All or an error: a few bytes, first on their connection, always have room.
absl::Status SendWhole(int fd, std::span<const std::byte> bytes);
// For a connection on which nothing is to come now. kUnavailable: as above. kInvalidArgument: something has.
absl::Status CheckSilent(int fd);

}  // namespace ringd

#endif  // RINGD_DAEMON_FAST_PATH_FAST_PATH_SOCKET_H_
