// Which of TCP's congestion controls connections between nodes are to have.
#ifndef RINGD_BACKENDS_CONGESTION_CONTROL_H_
#define RINGD_BACKENDS_CONGESTION_CONTROL_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ringd {

struct CongestionControl {
  std::string name;       // empty: each keeps what the system gave it
  bool only_bbr = false;  // only connections that have a kind of BBR get `name`
};

// What a setting means for this process:
//   "system"     what the kernel gives each connection
//   "auto"       the same, but cubic in place of BBR, or reno where the kernel allows no cubic
//   other words  this algorithm. kInvalidArgument: the kernel does not have it or does not allow
//                it, and which it does.
//
// BBR (N. Cardwell et al.: BBR: Congestion-Based Congestion Control, ACM Queue 14(5), 2016) sends
// next to nothing for 200 ms out of every 10 s, to see how short the way is when nobody queues. A
// ring stands still when one of its connections does, and they don't do it at the same time.
//
// Thread safety: any thread, as below.
absl::StatusOr<CongestionControl> ChooseCongestionControl(absl::string_view setting);

// True if the connection has it now.
bool ApplyCongestionControl(int fd, const CongestionControl& choice) noexcept;

}  // namespace ringd

#endif  // RINGD_BACKENDS_CONGESTION_CONTROL_H_
