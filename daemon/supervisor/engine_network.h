// What one engine has of the door: jobs that are expected, connections, dials, wires.
#ifndef RINGD_DAEMON_SUPERVISOR_ENGINE_NETWORK_H_
#define RINGD_DAEMON_SUPERVISOR_ENGINE_NETWORK_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "daemon/supervisor/engine_connections.h"
#include "daemon/supervisor/engine_places.h"
#include "daemon/supervisor/node_network.h"
#include "proto/base/counted_places.h"
#include "proto/rpc/engine_network.pb.h"

namespace ringd {

// Thread safety: one thread at a time, its destruction included; the door's thread never waits for
//   it.
// Ownership: of all that the engine has asked for: it ends with this.
// Trust: requests are input. Whose and which job they are about is not for them to say.
class EngineNetwork {
 public:
  static constexpr std::size_t kMostExpectations = 1024;
  // Of coordinators; one counts until nothing of it is left.
  static constexpr std::size_t kMostDials = 1024;
  static constexpr std::size_t kMostWires = 4096;      // open at a time, of both purposes
  static constexpr std::size_t kMostWireDials = 4096;  // as kMostDials
  // Of what the engine has told about its wires: addresses and names, as they lie in memory.
  static constexpr std::size_t kMostWireBytes = std::size_t{256} << 20;

  ~EngineNetwork();
  EngineNetwork(const EngineNetwork&) = delete;
  EngineNetwork& operator=(const EngineNetwork&) = delete;

  // The engine has ended by itself: the nodes at the other ends of its control connections hear
  // why, also behind a frame that it has sent in part (PeerStreams).
  void SayLast(const absl::Status& why) { connections_->SayLast(why); }

  // Other nodes are connected to it for control, as to a coordinator.
  bool HasConnections() const { return connections_->HasConnections(); }

  // What all engines of its user share.
  const std::shared_ptr<UserPlaces>& user_places() const noexcept { return user_places_; }

  // An error: no sound engine would ask that, and it should be ended.
  absl::Status OnRequest(const v1::EngineNetworkRequest& request);

 private:
  friend class NodeNetwork;
  struct OwnWire {
    std::uint64_t opening = 0;
    std::uint64_t group = 0;                 // of its dials
    CountedPlaces::Place place, user_place;  // for what it takes in memory
    bool dialled = false;                    // there may be some
    absl::Status problem;                    // not OK: it could not be opened
  };
  using WireKey = std::pair<std::uint32_t, std::uint64_t>;  // purpose and wire id

  EngineNetwork(NodeNetwork* node, uid_t user, std::string job_id, EngineConnections::Send send,
                std::shared_ptr<UserPlaces> places);

  absl::Status Expect(const v1::EngineExpect& request);
  void StopExpecting(const v1::EngineStopExpecting& request);
  absl::Status ConnectionEnded();
  absl::Status DialCoordinator(const v1::EngineDialCoordinator& request);
  absl::Status OpenWire(const v1::EngineWireOpen& request);
  void CloseWire(WireKey key);
  absl::Status DialWire(const v1::EngineWireDial& request);
  absl::Status WireTaken(const v1::EngineWireTaken& request);
  // Null: no purpose of wires.
  OpenWires* Wires(std::uint32_t purpose) const;
  void TellWire(const WireKey& key, std::uint64_t opening, NodeIndex node, std::uint32_t stream,
                const absl::Status& why);

  NodeNetwork* const node_;
  const uid_t user_;
  const std::string job_id_;
  const std::shared_ptr<UserPlaces> user_places_;
  const std::shared_ptr<EngineConnections> connections_;
  CountedPlaces dial_places_{kMostDials};
  CountedPlaces wire_dial_places_{kMostWireDials};
  CountedPlaces wire_bytes_{kMostWireBytes};
  std::map<std::uint64_t, ExpectationId> expectations_;  // by the engine's number
  std::map<WireKey, OwnWire> wires_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SUPERVISOR_ENGINE_NETWORK_H_
