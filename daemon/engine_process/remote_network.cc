#include "daemon/engine_process/remote_network.h"

#include <utility>

namespace ringd {
namespace {

// What one RemoteWireSockets can't open in any time.
constexpr int kOpeningBits = 40;

}  // namespace

RemoteNetwork::RemoteNetwork(uid_t user, Send send)
    : send_(std::move(send)), control_(user, send_) {}

absl::StatusOr<std::unique_ptr<WireSockets>> RemoteNetwork::MakeWireSockets(
    DoorPurpose purpose, std::string local_address) {
  absl::StatusOr<std::shared_ptr<RemoteWires>> wires = RemoteWires::Create();
  if (!wires.ok()) return wires.status();
  const MutexLock lock(mutex_);
  wires_[purpose] = *wires;
  return std::make_unique<RemoteWireSockets>(purpose, std::move(local_address), send_,
                                             ++made_ << kOpeningBits, *std::move(wires));
}

void RemoteNetwork::OnEvent(const v1::EngineNetworkEvent& event, std::vector<UniqueFd> fds) {
  UniqueFd socket = fds.empty() ? UniqueFd() : std::move(fds.front());
  if (!event.has_wire()) return control_.OnEvent(event, std::move(socket));
  std::shared_ptr<RemoteWires> wires;
  {
    const MutexLock lock(mutex_);
    const auto found = wires_.find(static_cast<DoorPurpose>(event.wire().purpose()));
    if (found != wires_.end()) wires = found->second.lock();
  }
  if (wires != nullptr) wires->OnEvent(event.wire(), std::move(socket));
}

}  // namespace ringd
