#include "backends/tcp/tcp_wire.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "backends/tcp/tcp_node.h"

namespace ringd {

TcpWire::TcpWire(TcpNode& node, const CommunicatorSpec& spec)
    : node_(node),
      wire_id_(spec.wire_id),
      self_(spec.self),
      share_(spec.share),
      connects_at_once_(spec.connects_at_once),
      addresses_(spec.addresses),
      places_(spec.addresses.size()) {}

TcpWire::~TcpWire() { node_.CloseWire(*this); }

void TcpWire::Start(WireCommunicator& communicator, const std::vector<NodeIndex>& neighbours) {
  communicator_ = &communicator;
  if (!connects_at_once_) return;
  for (const NodeIndex node : neighbours) {
    LineTo(node);
    if (self_ < node) {
      Dial(node);
    } else {
      DialAfter(node, kDialPatience);
    }
  }
}

TcpLine& TcpWire::LineTo(NodeIndex node) {
  Place& place = PlaceOf(node);
  if (place.line == nullptr) {
    TcpLine::User& user = *this;
    place.line = std::make_unique<TcpLine>(
        FrameScope{wire_id_, node.value(), self_.value()}, share_,
        node_.RemoteAt(addresses_[static_cast<std::size_t>(node.value())]), node_.means(), user);
  }
  return *place.line;
}

void TcpWire::Dial(NodeIndex node) {
  PlaceOf(node).dialled = true;
  const std::uint32_t bulk_streams =
      node_.BulkStreams(addresses_[static_cast<std::size_t>(self_.value())],
                        addresses_[static_cast<std::size_t>(node.value())]);
  for (std::uint32_t stream = 0; stream <= bulk_streams; ++stream) {
    node_.sockets().Dial(wire_id_, node, stream);
  }
}

void TcpWire::DialAfter(NodeIndex node, Clock::duration patience) {
  PlaceOf(node).dial_at = Clock::now() + patience;
  if (waiting_++ == 0) node_.NoteDeadline(*this);
}

void TcpWire::Take(WireSockets::Event event) noexcept {
  const auto index = static_cast<std::size_t>(event.node.value());
  if (event.node.value() < 0 || index >= places_.size() || event.node == self_) return;
  TcpLine& line = LineTo(event.node);
  if (event.status.ok()) {
    line.Adopt(std::move(event.socket), event.stream, event.dialled_here);
  } else if (!line.is_open()) {
    PlaceOf(event.node).is_unreached |= line.failure().ok();
    line.Fail(absl::UnavailableError(event.status.message()));
  }
  // Otherwise the other side has dialled, too.
}

void TcpWire::OnFailure(const TcpLine& line) noexcept {
  failed_.push_back(line.peer());
  node_.NoteFailure();
}

void TcpWire::ReportFailures() noexcept {
  // The first one is the cause. A ringd that ends after its job has said goodbye before.
  std::stable_partition(failed_.begin(), failed_.end(),
                        [this](NodeIndex node) { return !PlaceOf(node).line->peer_left(); });
  for (const NodeIndex node : std::exchange(failed_, {})) {
    TcpLine& line = *PlaceOf(node).line;
    line.Shut();
    if (PlaceOf(node).is_unreached) {
      communicator_->OnNodeUnreached(node, line.failure().message());
    } else if (absl::IsUnavailable(line.failure())) {
      communicator_->OnNodeLost(node, line.failure().message());
    } else {
      communicator_->OnNodeMisbehaved(node, line.failure().message());
    }
  }
}

std::optional<Clock::time_point> TcpWire::deadline() const noexcept {
  std::optional<Clock::time_point> earliest;
  if (waiting_ == 0) return earliest;
  for (const Place& place : places_) {
    if (place.dial_at && (!earliest || *place.dial_at < *earliest)) earliest = place.dial_at;
  }
  return earliest;
}

void TcpWire::Tick(Clock::time_point now) noexcept {
  if (waiting_ == 0) return;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    Place& place = places_[i];
    if (!place.dial_at) continue;
    const bool overdue = now >= *place.dial_at;
    if (!overdue && !place.line->is_open()) continue;
    place.dial_at.reset();
    --waiting_;
    if (!place.line->is_open() && place.line->failure().ok()) {
      Dial(NodeIndex(static_cast<std::int32_t>(i)));
    }
  }
}

std::vector<std::unique_ptr<TcpConnection>> TcpWire::Close() noexcept {
  std::vector<std::unique_ptr<TcpConnection>> all;
  for (Place& place : places_) {
    if (place.line == nullptr) continue;
    // A node that was lost, or misbehaved, gets no goodbye.
    if (!place.line->failure().ok()) place.line->Shut();
    auto connections = place.line->Close();
    std::move(connections.begin(), connections.end(), std::back_inserter(all));
    place.line.reset();
  }
  return all;
}

bool TcpWire::Send(NodeIndex to, const MessageHeader& header, std::span<const std::byte> payload,
                   SendPriority priority, SendObserver* observer) noexcept {
  Place& place = PlaceOf(to);
  if (place.line == nullptr) {
    LineTo(to);
    if (connects_at_once_ || self_ < to) {
      Dial(to);
    } else {
      DialAfter(to, kNeedPatience);
    }
  }
  return place.line->Send(header, payload, priority, observer);
}

void TcpWire::Withdraw(SendObserver* observer) noexcept {
  for (Place& place : places_) {
    if (place.line != nullptr) place.line->Withdraw(observer);
  }
}

NeighbourLine TcpWire::DescribeLine(NodeIndex node) const {
  const Place& place = places_[static_cast<std::size_t>(node.value())];
  return place.line == nullptr ? NeighbourLine{} : place.line->Describe();
}

}  // namespace ringd
