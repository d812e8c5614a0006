// The implementation behind ucx_transport.h: this node's worker and what is connected to it.
#ifndef RINGD_BACKENDS_UCX_UCX_NODE_H_
#define RINGD_BACKENDS_UCX_UCX_NODE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "backends/backend.h"
#include "backends/collectives/early_messages.h"
#include "backends/collectives/orphan_messages.h"
#include "backends/collectives/wire_communicator.h"
#include "backends/ucx/ucx_handles.h"
#include "backends/ucx/ucx_peer.h"

namespace ringd {

class UcxWire;

// Receives all messages of a worker and gives them to the communicators; owns the peers.
//
// A message is one UCX active message: it carries our header beside the payload, so its meaning
// needs no room in a 64-bit tag, and over TCP its payload is read where the socket's bytes arrived.
//
// Thread safety: the progress thread only.
// Ownership: see Transport. Peers are shared with the wires of communicators, and stay when these
//   go, unless lost: then the next communicator with that address starts with a new one.
class UcxNode final : public Transport {
 public:
  static absl::StatusOr<std::unique_ptr<Transport>> Create(const TransportOptions& options);
  ~UcxNode() override;

  absl::string_view name() const noexcept override { return "ucx"; }
  const std::string& LocalAddress() const noexcept override { return address_; }
  int event_fd() const noexcept override { return event_fd_; }
  [[nodiscard]] bool Arm() noexcept override;
  std::size_t Progress() noexcept override;
  absl::StatusOr<std::unique_ptr<Communicator>> CreateCommunicator(
      const CommunicatorSpec& spec) override;

  // For the wires.

  // The peer of a valid address, being connected if it was not. Never null; a peer that can't be
  // connected is lost.
  // `name` is for people.
  std::shared_ptr<UcxPeer> FindPeer(const std::string& address, const std::string& name);

  // Ends all sends of a wire: no payload of it is read when this returns, and no message comes for
  // it any more. Blocks for a second at most, and only if sends are in progress to a peer that has
  // stopped reading; it is given up as lost.
  void CloseWire(const WireKey& key, UcxWire& wire) noexcept;

 private:
  struct End {
    UcxWire* wire = nullptr;
    WireCommunicator* communicator = nullptr;
  };
  // A message that UCX fetches by rendezvous.
  struct Landing {
    UcxNode* node;
    EarlyMessage* message;
  };

  UcxNode(UcpContext context, UcpWorker worker, std::size_t bulk_streams,
          std::function<void(const std::string&)> log);

  static ucs_status_t OnActiveMessage(void* self, const void* header, std::size_t header_length,
                                      void* data, std::size_t length,
                                      const ucp_am_recv_param_t* param);
  static void OnLanded(void* request, ucs_status_t status, std::size_t length, void* landing);

  absl::Status Listen();
  ucs_status_t Fetch(const MessageHeader& header, void* data, std::size_t length);
  void LoseMessage(const MessageHeader& header, ucs_status_t status) noexcept;
  void Route(const MessageHeader& header, std::span<const std::byte> payload) noexcept;
  void ReportLostPeers() noexcept;
  void ForgetClosedPeers() noexcept;
  void TellNews(UcxPeer& peer) noexcept;

  EarlyMessagePool early_pool_;
  SendPool<UcxSend> send_pool_;
  UcpContext context_;
  UcpWorker worker_;
  std::string address_;
  const std::size_t bulk_streams_;
  int event_fd_ = -1;
  const std::function<void(const std::string&)> log_;
  OrphanMessages orphans_{early_pool_};
  absl::flat_hash_map<std::string, std::shared_ptr<UcxPeer>> peers_;  // by address
  std::vector<std::shared_ptr<UcxPeer>> closing_;                     // lost ones
  absl::flat_hash_map<WireKey, End> ends_;
  BusyCommunicators busy_;
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_UCX_UCX_NODE_H_
