// The version of what ringds say to each other.
#ifndef RINGD_DAEMON_JOBS_MEMBERSHIP_PROTOCOL_VERSION_H_
#define RINGD_DAEMON_JOBS_MEMBERSHIP_PROTOCOL_VERSION_H_

#include <cstdint>

namespace ringd {

// Grows with every incompatible change of proto/rpc/peer.proto or of a backend's messages. Two
// ringds with different numbers refuse each other and name both.
inline constexpr std::uint32_t kPeerProtocolVersion = 15;

}  // namespace ringd

#endif  // RINGD_DAEMON_JOBS_MEMBERSHIP_PROTOCOL_VERSION_H_
