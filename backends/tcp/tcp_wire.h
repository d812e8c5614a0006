// A communicator's way to its nodes: a line to each that is needed.
#ifndef RINGD_BACKENDS_TCP_TCP_WIRE_H_
#define RINGD_BACKENDS_TCP_TCP_WIRE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backends/collectives/message_wire.h"
#include "backends/collectives/wire_communicator.h"
#include "backends/tcp/tcp_line.h"
#include "backends/tcp/wire_sockets.h"
#include "proto/base/clock.h"

namespace ringd {

class TcpNode;

// Lines to the ring's neighbours are opened at once, unless the spec says otherwise, and others
// when first needed. Of two neighbours the one with the lower index dials; if it does not within
// kDialPatience, the other one dials, too. Where nothing is opened at once, the one with the higher
// index gives the other kNeedPatience: mostly both need the line at the same time.
//
// Thread safety: the progress thread only.
// Ownership: borrows the TcpNode, which outlives it; owns the lines.
class TcpWire final : public MessageWire, private TcpLine::User {
 public:
  static constexpr std::chrono::seconds kDialPatience{2};
  static constexpr std::chrono::milliseconds kNeedPatience{3};

  // Requirement: the addresses in `spec` are valid.
  TcpWire(TcpNode& node, const CommunicatorSpec& spec);
  ~TcpWire() override;

  // For the node.

  // Begins to open the lines to the neighbours. `communicator` gets what comes in.
  void Start(WireCommunicator& communicator, const std::vector<NodeIndex>& neighbours);
  std::uint64_t wire_id() const noexcept { return wire_id_; }
  // A connection that was opened, or could not be.
  void Take(WireSockets::Event event) noexcept;
  // Tells the communicator of lines that have failed.
  void ReportFailures() noexcept;
  // When Tick() has something to do.
  std::optional<Clock::time_point> deadline() const noexcept;
  void Tick(Clock::time_point now) noexcept;
  // Drops what waits, and hands out all connections.
  std::vector<std::unique_ptr<TcpConnection>> Close() noexcept;

  bool Send(NodeIndex to, const MessageHeader& header, std::span<const std::byte> payload,
            SendPriority priority, SendObserver* observer) noexcept override;
  void Withdraw(SendObserver* observer) noexcept override;
  NeighbourLine DescribeLine(NodeIndex node) const override;

 private:
  struct Place {
    std::unique_ptr<TcpLine> line;  // null: not needed yet
    bool dialled = false;
    bool is_unreached = false;  // the line has failed before it was open
    std::optional<Clock::time_point> dial_at;
  };

  void OnMessage(const MessageHeader& header,
                 std::span<const std::byte> payload) noexcept override {
    communicator_->OnMessage(header, payload);
  }
  void OnFailure(const TcpLine& line) noexcept override;

  Place& PlaceOf(NodeIndex node) noexcept {
    return places_[static_cast<std::size_t>(node.value())];
  }
  TcpLine& LineTo(NodeIndex node);
  void Dial(NodeIndex node);
  void DialAfter(NodeIndex node, Clock::duration patience);

  TcpNode& node_;
  const std::uint64_t wire_id_;
  const NodeIndex self_;
  const LineShare share_;
  const bool connects_at_once_;
  const std::vector<std::string> addresses_;
  WireCommunicator* communicator_ = nullptr;
  std::vector<Place> places_;      // by node
  std::size_t waiting_ = 0;        // places with a dial_at
  std::vector<NodeIndex> failed_;  // and not reported, the first one first
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_TCP_TCP_WIRE_H_
