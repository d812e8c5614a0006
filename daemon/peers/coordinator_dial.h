// Finding the coordinator of a job: its name, its door, and the proof of the job's key.
#ifndef RINGD_DAEMON_PEERS_COORDINATOR_DIAL_H_
#define RINGD_DAEMON_PEERS_COORDINATOR_DIAL_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/config/host_port.h"
#include "daemon/door/door.h"
#include "daemon/peers/name_resolver.h"
#include "daemon/peers/peer_network.h"
#include "proto/base/clock.h"

namespace ringd {

// Looks the name up and dials, again and again until it is let in, refused for good, or the
// deadline has passed. A name is looked up anew every few seconds: it may not be known yet, or
// stand for another address than before.
//
// Thread safety: any thread.
// Ownership: shared; door and resolver are borrowed, and must be stopped before what `done` uses
//   goes.
class CoordinatorDial : public std::enable_shared_from_this<CoordinatorDial> {
 public:
  // As DialRequest::done. kInvalidArgument also if `host_port` is no address.
  using Done = std::function<void(absl::StatusOr<DoorConnection>)>;

  CoordinatorDial(Door* door, NameResolver* resolver, CoordinatorAddress coordinator,
                  std::uint32_t flags, Clock::time_point deadline, Done done);

  // Calls `done` once, perhaps at once, unless it was abandoned before.
  void Begin();
  // `done` may be under way.
  void Abandon();

 private:
  // Addresses of a name are believed for so long.
  static constexpr std::chrono::seconds kRound{10};
  static constexpr std::chrono::milliseconds kPause{500};

  void Look();
  void Dial(std::vector<std::string> addresses);
  void OnDialled(absl::StatusOr<DoorConnection> outcome);
  void End(absl::StatusOr<DoorConnection> outcome);

  Door* const door_;
  NameResolver* const resolver_;
  const CoordinatorAddress coordinator_;
  const std::uint32_t flags_;
  const Clock::time_point deadline_;
  const Done done_;
  const std::uint64_t group_;
  HostPort address_;
  std::atomic<bool> ended_{false};  // nothing else is ordered by it
};

}  // namespace ringd

#endif  // RINGD_DAEMON_PEERS_COORDINATOR_DIAL_H_
