#include "backends/ucx/ucx_wire.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "backends/ucx/ucx_node.h"

namespace ringd {

UcxWire::UcxWire(UcxNode& node, const WireKey& key, const CommunicatorSpec& spec)
    : node_(node),
      key_(key),
      addresses_(spec.addresses),
      names_(spec.node_names),
      share_(spec.share),
      peers_(addresses_.size()),
      flows_(addresses_.size()) {}

UcxWire::~UcxWire() { node_.CloseWire(key_, *this); }

UcxPeer& UcxWire::PeerOf(NodeIndex node) {
  const auto index = static_cast<std::size_t>(node.value());
  // Once lost, a node stays lost for this communicator: no second connection is tried.
  if (peers_[index] == nullptr) {
    peers_[index] =
        node_.FindPeer(addresses_[index],
                       index < names_.size() ? names_[index] : absl::StrCat("node ", node.value()));
    flows_[index] = peers_[index]->AddFlow(share_);
  }
  return *peers_[index];
}

void UcxWire::LeavePeers() noexcept {
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    if (peers_[i] != nullptr) peers_[i]->RemoveFlow(flows_[i]);
  }
  peers_.clear();
  flows_.clear();
}

NodeIndex UcxWire::NodeAt(const UcxPeer& peer) const noexcept {
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    if (peers_[i].get() == &peer) return NodeIndex(static_cast<std::int32_t>(i));
  }
  return NodeIndex(-1);
}

bool UcxWire::Send(NodeIndex to, const MessageHeader& header, std::span<const std::byte> payload,
                   SendPriority priority, SendObserver* observer) noexcept {
  UcxPeer& peer = PeerOf(to);
  return peer.Send(this, *flows_[static_cast<std::size_t>(to.value())], to, header, payload,
                   priority, observer);
}

void UcxWire::Withdraw(SendObserver* observer) noexcept {
  for (const auto& peer : peers_) {
    if (peer != nullptr) peer->Withdraw(observer);
  }
}

NeighbourLine UcxWire::DescribeLine(NodeIndex node) const {
  const auto& peer = peers_[static_cast<std::size_t>(node.value())];
  return peer == nullptr ? NeighbourLine{} : peer->Describe();
}

}  // namespace ringd
