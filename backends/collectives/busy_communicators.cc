#include "backends/collectives/busy_communicators.h"

#include <algorithm>

#include "backends/collectives/wire_communicator.h"

namespace ringd {

std::size_t BusyCommunicators::Advance() noexcept {
  std::size_t work = 0;
  for (std::size_t i = 0; i < communicators_.size();) {
    WireCommunicator& communicator = *communicators_[i];
    work += communicator.Advance();
    if (communicator.StaysBusy()) {
      ++i;
    } else {
      communicators_.erase(communicators_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  return work;
}

bool BusyCommunicators::HasPendingWork() const noexcept {
  return std::any_of(
      communicators_.begin(), communicators_.end(),
      [](const WireCommunicator* communicator) { return communicator->HasPendingWork(); });
}

void BusyCommunicators::Leave(const WireCommunicator& communicator) noexcept {
  std::erase(communicators_, &communicator);
}

}  // namespace ringd
