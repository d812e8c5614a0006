// The connections of wires, and those between ranks, through the door.
#ifndef RINGD_DAEMON_DOOR_WIRE_DOOR_H_
#define RINGD_DAEMON_DOOR_WIRE_DOOR_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/tcp/wire_sockets.h"
#include "daemon/door/door.h"
#include "daemon/door/open_wires.h"
#include "proto/base/clock.h"

namespace ringd {

struct WireDoorOptions {
  // kWire, or kExchange: connections that are handed to ranks.
  DoorPurpose purpose = DoorPurpose::kWire;
  // What other nodes dial, as wire_address.h says; empty: where the door listens.
  std::string local_address;
  std::uint32_t flags = 0;  // kDoorHasClusterKey, kDoorHasJobSecret
  // How long a dialler goes on trying.
  Clock::duration patience = std::chrono::seconds(30);
  std::size_t most_untaken = 256;  // see OpenWires
};

// Thread safety: as WireSockets.
// Ownership: borrows the door, which may go on when this goes; it must not go before.
class WireDoor final : public WireSockets {
 public:
  // Receives the connections of its purpose, in place of another one if there is one.
  //   What the kernel says.
  static absl::StatusOr<std::unique_ptr<WireDoor>> Create(Door* door, WireDoorOptions options);
  ~WireDoor() override;

  const std::string& LocalAddress() const override { return options_.local_address; }
  int event_fd() const override { return open_->event_fd(); }
  void Open(const WireMembership& membership) override {
    open_->Open(membership, door_->NewGroup());
    door_->Reconsider();
  }
  void Close(std::uint64_t wire_id) override;
  void Dial(std::uint64_t wire_id, NodeIndex to, std::uint32_t stream) override;
  std::vector<Event> Take() override { return open_->Take(); }

 private:
  WireDoor(Door* door, WireDoorOptions options, std::shared_ptr<OpenWires> open);

  Door* const door_;
  const WireDoorOptions options_;
  const std::shared_ptr<OpenWires> open_;  // the door's thread may be in the middle of a call to it
};

}  // namespace ringd

#endif  // RINGD_DAEMON_DOOR_WIRE_DOOR_H_
