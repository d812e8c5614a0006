#include "daemon/service/tcp_backend.h"

#include <string>
#include <utility>
#include <vector>

#include "backends/congestion_control.h"
#include "backends/tcp/tcp_transport.h"
#include "daemon/config/host_port.h"
#include "daemon/config/network_identity.h"
#include "daemon/door/door.h"
#include "daemon/door/wire_door.h"
#include "proto/door/door_message.h"

namespace ringd {
namespace {

// A wire's door together with the Door behind it, which is its alone.
class OwnDoor final : public WireSockets {
 public:
  OwnDoor(std::unique_ptr<Door> door, std::unique_ptr<WireDoor> wires)
      : door_(std::move(door)), wires_(std::move(wires)) {
    door_->Start();
  }
  ~OwnDoor() override { door_->Stop(); }

  const std::string& LocalAddress() const override { return wires_->LocalAddress(); }
  int event_fd() const override { return wires_->event_fd(); }
  void Open(const WireMembership& membership) override { wires_->Open(membership); }
  void Close(std::uint64_t wire_id) override { wires_->Close(wire_id); }
  void Dial(std::uint64_t wire_id, NodeIndex to, std::uint32_t stream) override {
    wires_->Dial(wire_id, to, stream);
  }
  std::vector<Event> Take() override { return wires_->Take(); }

 private:
  std::unique_ptr<Door> door_;  // uses the wires until it is stopped
  std::unique_ptr<WireDoor> wires_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> MakeTcpBackend(const Config& config,
                                                          const TransportOptions& options,
                                                          bool has_cluster_key) {
  absl::StatusOr<std::string> host = FindDataHost(config);
  if (!host.ok()) return host.status();
  absl::StatusOr<CongestionControl> control = ChooseCongestionControl(config.congestion_control);
  if (!control.ok()) return control.status();
  const std::uint32_t flags = has_cluster_key ? kDoorHasClusterKey : 0;
  DoorOptions door_options;
  door_options.address = FormatHostPort({*std::move(host), 0});
  door_options.node_name = config.node_name;
  door_options.challenge_flags = flags;
  door_options.congestion_control = *std::move(control);
  absl::StatusOr<std::unique_ptr<Door>> door = Door::Open(std::move(door_options));
  if (!door.ok()) return door.status();
  WireDoorOptions wire_options;
  wire_options.flags = flags;
  absl::StatusOr<std::unique_ptr<WireDoor>> wires = WireDoor::Create(door->get(), wire_options);
  if (!wires.ok()) return wires.status();
  return CreateTcpTransport(options,
                            std::make_unique<OwnDoor>(*std::move(door), *std::move(wires)));
}

}  // namespace ringd
