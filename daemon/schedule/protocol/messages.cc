#include "daemon/schedule/protocol/messages.h"

namespace ringd {

const char* Name(BreakReason reason) noexcept {
  switch (reason) {
    case BreakReason::kMeta:
      return "meta";
    case BreakReason::kBlocked:
      return "blocked";
    case BreakReason::kLate:
      return "late";
    case BreakReason::kWithdrawn:
      return "withdrawn";
    case BreakReason::kReplan:
      return "replan";
  }
  return "invalid";
}

}  // namespace ringd
