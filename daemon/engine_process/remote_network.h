// The network of an engine: its supervisor's door, at the other end of a channel.
#ifndef RINGD_DAEMON_ENGINE_PROCESS_REMOTE_NETWORK_H_
#define RINGD_DAEMON_ENGINE_PROCESS_REMOTE_NETWORK_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "backends/tcp/wire_sockets.h"
#include "daemon/engine_process/remote_control_door.h"
#include "daemon/engine_process/remote_wire_sockets.h"
#include "proto/base/mutex.h"
#include "proto/base/unique_fd.h"
#include "proto/door/door_message.h"
#include "proto/rpc/engine_network.pb.h"

namespace ringd {

//   RemoteNetwork network(uid, [&](v1::EngineNetworkRequest request) { ...to the channel... });
//   auto peers = SocketPeerNetwork::Create(network.control(), options);
//   auto wires = network.MakeWireSockets(DoorPurpose::kWire, start.wire_address());
//   ... on the channel's thread: network.OnEvent(event, std::move(fds));
//
// Thread safety: any thread.
// Ownership: lives longer than those who use control(). WireSockets may live longer than this; what
//   `send` uses must live as long as all of them.
class RemoteNetwork {
 public:
  // Never blocks; called on any thread, and answered by OnEvent, perhaps before it returns.
  using Send = std::function<void(v1::EngineNetworkRequest)>;

  // `user` has the engine's job.
  RemoteNetwork(uid_t user, Send send);

  ControlDoor* control() noexcept { return &control_; }
  // For kWire or kExchange. From now on events of the purpose go there, and to none made before.
  // `local_address`: what other nodes dial, as wire_address.h says.
  //   What the kernel says.
  absl::StatusOr<std::unique_ptr<WireSockets>> MakeWireSockets(DoorPurpose purpose,
                                                               std::string local_address)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // What does not belong to anything here is dropped, and its socket closed.
  void OnEvent(const v1::EngineNetworkEvent& event, std::vector<UniqueFd> fds)
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  const Send send_;
  RemoteControlDoor control_;
  Mutex mutex_;
  std::uint64_t made_ ABSL_GUARDED_BY(mutex_) = 0;  // WireSockets
  std::map<DoorPurpose, std::weak_ptr<RemoteWires>> wires_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ringd

#endif  // RINGD_DAEMON_ENGINE_PROCESS_REMOTE_NETWORK_H_
