#include "daemon/door/wire_door.h"

#include <optional>
#include <utility>

#include "absl/status/status.h"

namespace ringd {

absl::StatusOr<std::unique_ptr<WireDoor>> WireDoor::Create(Door* door, WireDoorOptions options) {
  absl::StatusOr<std::shared_ptr<OpenWires>> open =
      OpenWires::Create(options.purpose, options.most_untaken);
  if (!open.ok()) return open.status();
  if (options.local_address.empty()) options.local_address = door->address();
  door->SetReception(options.purpose, *open);
  return std::unique_ptr<WireDoor>(new WireDoor(door, std::move(options), *std::move(open)));
}

WireDoor::WireDoor(Door* door, WireDoorOptions options, std::shared_ptr<OpenWires> open)
    : door_(door), options_(std::move(options)), open_(std::move(open)) {}

WireDoor::~WireDoor() {
  door_->RemoveReception(options_.purpose, open_.get());
  for (const std::uint64_t group : open_->CloseAll()) door_->Abandon(group);
}

void WireDoor::Close(std::uint64_t wire_id) {
  if (const auto group = open_->Close(wire_id)) door_->Abandon(*group);
}

void WireDoor::Dial(std::uint64_t wire_id, NodeIndex to, std::uint32_t stream) {
  std::optional<DialRequest> request = open_->MakeRequest(wire_id, to, stream);
  if (!request.has_value()) return;
  request->flags = options_.flags;
  request->deadline = Clock::now() + options_.patience;
  request->done = [open = open_, group = request->group, wire_id, to,
                   stream](absl::StatusOr<DoorConnection> outcome) {
    Event event{wire_id, to, stream, true, absl::OkStatus(), {}};
    if (outcome.ok()) {
      event.socket = std::move(outcome->socket);
    } else {
      event.status = std::move(outcome).status();
    }
    open->OnDialled(group, std::move(event));
  };
  door_->Dial(*std::move(request));
}

}  // namespace ringd
