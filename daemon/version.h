// The release of this ringd.
#ifndef RINGD_DAEMON_VERSION_H_
#define RINGD_DAEMON_VERSION_H_

namespace ringd {

inline constexpr char kRingdVersion[] = "0.1.0";

}  // namespace ringd

#endif  // RINGD_DAEMON_VERSION_H_
