// The version of what ringds say to each other.
#ifndef RINGD_DAEMON_JOBS_MEMBERSHIP_PROTOCOL_VERSION_H_
#define RINGD_DAEMON_JOBS_MEMBERSHIP_PROTOCOL_VERSION_H_

#include <cstdint>

namespace ringd {

// Grows with every incompatible change of proto/rpc/peer.proto, of a backend's messages, or of what
// all nodes compute alike. Two ringds with different numbers refuse each other and name both.
inline constexpr std::uint32_t kPeerProtocolVersion = 16;

}  // namespace ringd

#endif  // RINGD_DAEMON_JOBS_MEMBERSHIP_PROTOCOL_VERSION_H_
