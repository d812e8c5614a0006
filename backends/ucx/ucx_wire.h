// A communicator's way to its nodes: each message to the peer where the node lives.
#ifndef RINGD_BACKENDS_UCX_UCX_WIRE_H_
#define RINGD_BACKENDS_UCX_UCX_WIRE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backends/collectives/message_wire.h"
#include "backends/collectives/orphan_messages.h"
#include "backends/ucx/ucx_peer.h"

namespace ringd {

class UcxNode;

// Peers are connected when first needed.
//
// Thread safety: the progress thread only.
// Ownership: borrows the UcxNode, which outlives it; shares the peers with other wires.
class UcxWire final : public MessageWire {
 public:
  // Requirement: the addresses in `spec` are valid.
  UcxWire(UcxNode& node, const WireKey& key, const CommunicatorSpec& spec);
  ~UcxWire() override;

  // The peer where `node` lives, connected now if it was not. Does not block.
  UcxPeer& PeerOf(NodeIndex node);
  // The inverse; -1 if no node of this communicator was connected there.
  NodeIndex NodeAt(const UcxPeer& peer) const noexcept;
  // Gives the peers back what this wire has there. Requirement: nothing of it is being sent.
  void LeavePeers() noexcept;
  // By node; null where none was needed yet.
  const std::vector<std::shared_ptr<UcxPeer>>& peers() const noexcept { return peers_; }

  bool Send(NodeIndex to, const MessageHeader& header, std::span<const std::byte> payload,
            SendPriority priority, SendObserver* observer) noexcept override;
  void Withdraw(SendObserver* observer) noexcept override;
  NeighbourLine DescribeLine(NodeIndex node) const override;

 private:
  UcxNode& node_;
  const WireKey key_;
  const std::vector<std::string> addresses_;
  const std::vector<std::string> names_;
  const LineShare share_;
  std::vector<std::shared_ptr<UcxPeer>> peers_;
  std::vector<UcxFlow*> flows_;  // by node: in the peers
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_UCX_UCX_WIRE_H_
