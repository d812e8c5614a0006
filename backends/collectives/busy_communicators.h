// Which communicators of a transport have anything to do.
#ifndef RINGD_BACKENDS_COLLECTIVES_BUSY_COMMUNICATORS_H_
#define RINGD_BACKENDS_COLLECTIVES_BUSY_COMMUNICATORS_H_

#include <cstddef>
#include <vector>

namespace ringd {

class WireCommunicator;

// Those with operations under way. A turn of the transport advances these: communicators that idle
// cost it nothing, however many there are.
//
// Thread safety: the progress thread only.
// Ownership: borrows communicators, each of which enters itself, and leaves when it goes.
class BusyCommunicators {
 public:
  BusyCommunicators() = default;
  BusyCommunicators(const BusyCommunicators&) = delete;
  BusyCommunicators& operator=(const BusyCommunicators&) = delete;

  // Lets their operations go on, and drops those that have none left; returns the amount of work.
  std::size_t Advance() noexcept;
  // Advance() would do something now.
  bool HasPendingWork() const noexcept;
  std::size_t count() const noexcept { return communicators_.size(); }

  // For the communicators. Requirement of Enter: it is not in here.
  void Enter(WireCommunicator& communicator) noexcept { communicators_.push_back(&communicator); }
  void Leave(const WireCommunicator& communicator) noexcept;

 private:
  std::vector<WireCommunicator*> communicators_;
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_COLLECTIVES_BUSY_COMMUNICATORS_H_
