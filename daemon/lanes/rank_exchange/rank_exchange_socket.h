// Sockets of the rank exchange, from the door to the ranks.
#ifndef RINGD_DAEMON_LANES_RANK_EXCHANGE_RANK_EXCHANGE_SOCKET_H_
#define RINGD_DAEMON_LANES_RANK_EXCHANGE_RANK_EXCHANGE_SOCKET_H_

#include <cstddef>
#include <span>

#include "absl/status/status.h"

namespace ringd {

// Thread safety: any thread. No function blocks.

// For one that came through the door: has room for all that can be under way.
void TuneRankExchangeSocket(int fd) noexcept;

// Makes it one that ranks may wait for, a little.
void HandOverRankExchangeSocket(int fd) noexcept;

// Receives what is missing of `bytes`, of which `filled` are there. kUnavailable: the other side
// has closed it, or it broke. OK with filled < bytes.size(): more has to come.
absl::Status ReceiveSome(int fd, std::span<std::byte> bytes, std::size_t& filled);
// All or an error: a few bytes, first on their connection, always have room.
absl::Status SendWhole(int fd, std::span<const std::byte> bytes);
// For a connection on which nothing is to come now. kUnavailable: as above. kInvalidArgument:
// something has.
absl::Status CheckSilent(int fd);

}  // namespace ringd

#endif  // RINGD_DAEMON_LANES_RANK_EXCHANGE_RANK_EXCHANGE_SOCKET_H_
