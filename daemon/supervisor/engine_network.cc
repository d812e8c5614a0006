#include "daemon/supervisor/engine_network.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/channel/engine_status.h"

namespace ringd {
namespace {

constexpr std::chrono::milliseconds kLongestPatience = std::chrono::hours(24 * 365);
constexpr std::size_t kMostAddressBytes = 1024;  // of a coordinator's: a name of 255, and some
// About what a wire takes in memory, and each text about its nodes besides its bytes.
constexpr std::size_t kWireBytes = 1024;
constexpr std::size_t kTextBytes = 64;

absl::Status Wrong(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("of the network, the engine asked for ", what));
}

std::optional<DoorKey> ToKey(const std::string& bytes) {
  if (bytes.size() != kSha256Bytes) return std::nullopt;
  DoorKey key;
  std::memcpy(key.data(), bytes.data(), key.size());
  return key;
}

v1::EngineNetworkEvent WireEvent(std::pair<std::uint32_t, std::uint64_t> wire,
                                 std::uint64_t opening, NodeIndex node, std::uint32_t stream,
                                 bool dialled_here, const absl::Status& status) {
  v1::EngineNetworkEvent event;
  v1::EngineWireEvent& told = *event.mutable_wire();
  told.set_purpose(wire.first);
  told.set_wire_id(wire.second);
  told.set_opening(opening);
  told.set_node(node.value());
  told.set_stream(stream);
  told.set_dialled_here(dialled_here);
  WriteStatus(status, told.mutable_status());
  return event;
}

v1::EngineNetworkEvent DialledEvent(std::uint64_t dial, const absl::Status& status) {
  v1::EngineNetworkEvent event;
  v1::EngineCoordinatorDialled& told = *event.mutable_coordinator_dialled();
  told.set_dial(dial);
  WriteStatus(status, told.mutable_status());
  return event;
}

std::size_t BytesOf(const v1::EngineWireOpen& wire) {
  std::size_t bytes = kWireBytes;
  for (const std::string& address : wire.addresses()) bytes += kTextBytes + address.size();
  for (const std::string& name : wire.node_names()) bytes += kTextBytes + name.size();
  return bytes;
}

// What has come of a dial.
struct Dialled {
  absl::Status status;
  UniqueFd socket;
  CountedPlaces::Place place;  // of the socket: until it has been sent to the engine
};

// A connection that has no place is closed.
Dialled TakePlace(absl::StatusOr<UniqueFd> outcome, UserPlaces& places) {
  if (!outcome.ok()) return {outcome.status(), {}, nullptr};
  CountedPlaces::Place place = places.unsent.Take();
  if (place == nullptr) {
    return {absl::ResourceExhaustedError(
                absl::StrCat(UserPlaces::kMostUnsent, " connections wait for this user's engines")),
            {},
            nullptr};
  }
  return {absl::OkStatus(), *std::move(outcome), std::move(place)};
}

absl::Status TooMany(bool of_job, std::size_t most_of_job, std::size_t most_of_user,
                     absl::string_view what) {
  return absl::ResourceExhaustedError(absl::StrCat(of_job ? most_of_job : most_of_user, " ", what,
                                                   of_job ? " by this job" : " by this user"));
}

}  // namespace

EngineNetwork::EngineNetwork(NodeNetwork* node, uid_t user, std::string job_id,
                             EngineConnections::Send send, std::shared_ptr<UserPlaces> places)
    : node_(node),
      user_(user),
      job_id_(std::move(job_id)),
      user_places_(std::move(places)),
      connections_(
          std::make_shared<EngineConnections>(std::move(send), user_places_, node->isolated_)) {}

EngineNetwork::~EngineNetwork() {
  for (const auto& [number, id] : expectations_) node_->StopExpecting(id);
  while (!wires_.empty()) CloseWire(wires_.begin()->first);
  const EngineConnections::Left left = connections_->Leave();
  for (const ControlDoor::DialId id : left.dials) node_->control_.Abandon(id);
  for (std::size_t i = 0; i < left.connections; ++i) node_->control_.Release(user_);
}

absl::Status EngineNetwork::OnRequest(const v1::EngineNetworkRequest& request) {
  switch (request.what_case()) {
    case v1::EngineNetworkRequest::kWireOpen:
      return OpenWire(request.wire_open());
    case v1::EngineNetworkRequest::kWireClose:
      CloseWire({request.wire_close().purpose(), request.wire_close().wire_id()});
      return absl::OkStatus();
    case v1::EngineNetworkRequest::kWireDial:
      return DialWire(request.wire_dial());
    case v1::EngineNetworkRequest::kWireTaken:
      return WireTaken(request.wire_taken());
    case v1::EngineNetworkRequest::kExpect:
      return Expect(request.expect());
    case v1::EngineNetworkRequest::kStopExpecting:
      StopExpecting(request.stop_expecting());
      return absl::OkStatus();
    case v1::EngineNetworkRequest::kDialCoordinator:
      return DialCoordinator(request.dial_coordinator());
    case v1::EngineNetworkRequest::kAbandonDial:
      // It may have ended meanwhile.
      if (const auto id = connections_->AbandonDial(request.abandon_dial().dial())) {
        node_->control_.Abandon(*id);
      }
      return absl::OkStatus();
    case v1::EngineNetworkRequest::kConnectionEnded:
      return ConnectionEnded();
    case v1::EngineNetworkRequest::WHAT_NOT_SET:
      break;
  }
  return Wrong("nothing that is known");
}

// ---- control

absl::Status EngineNetwork::Expect(const v1::EngineExpect& request) {
  const std::optional<DoorKey> key = ToKey(request.key());
  if (!key.has_value()) return Wrong("nodes with a key of another length");
  if (expectations_.size() >= kMostExpectations) return Wrong("too many expected jobs");
  if (expectations_.contains(request.expectation())) return Wrong("a job that is expected already");
  ExpectedJob job;
  job.job_id = job_id_;
  job.uid = user_;
  job.key = *key;
  job.has_secret = request.has_secret();
  job.one_node_only = request.one_node_only();
  const ExpectationId id = node_->Expect(connections_, request.expectation(), std::move(job));
  expectations_.emplace(request.expectation(), id);
  return absl::OkStatus();
}

void EngineNetwork::StopExpecting(const v1::EngineStopExpecting& request) {
  const auto found = expectations_.find(request.expectation());
  if (found == expectations_.end()) return;
  node_->StopExpecting(found->second);
  expectations_.erase(found);
}

absl::Status EngineNetwork::ConnectionEnded() {
  if (!connections_->EndConnection()) return Wrong("the end of a connection that there is not");
  node_->control_.Release(user_);
  return absl::OkStatus();
}

absl::Status EngineNetwork::DialCoordinator(const v1::EngineDialCoordinator& request) {
  const std::optional<DoorKey> key = ToKey(request.key());
  if (!key.has_value()) return Wrong("a coordinator with a key of another length");
  if (request.host_port().size() > kMostAddressBytes) {
    connections_->Tell(
        DialledEvent(request.dial(), absl::InvalidArgumentError(absl::StrCat(
                                         "an address of ", request.host_port().size(), " bytes"))),
        {});
    return absl::OkStatus();
  }
  CountedPlaces::Place place = dial_places_.Take();
  CountedPlaces::Place user_place = user_places_->dials.Take();
  if (place == nullptr || user_place == nullptr) {
    connections_->Tell(
        DialledEvent(request.dial(), TooMany(place == nullptr, kMostDials, UserPlaces::kMostDials,
                                             "coordinators are being looked for")),
        {});
    return absl::OkStatus();
  }
  const ControlDoor::DialId id = node_->NewDial();
  const std::uint64_t number = request.dial();
  if (!connections_->AddDial(number, id)) return Wrong("a dial that is under way");
  const auto patience = std::chrono::milliseconds(
      std::min<std::uint64_t>(request.patience_ms(), kLongestPatience.count()));
  node_->control_.Dial(
      id, {request.host_port(), job_id_, user_, *key, request.has_secret()},
      Clock::now() + patience,
      [connections = connections_, number, id, places = user_places_, place = std::move(place),
       user_place = std::move(user_place)](absl::StatusOr<UniqueFd> outcome) {
        if (!connections->EndDial(number, id)) return;
        Dialled dialled = TakePlace(std::move(outcome), *places);
        if (dialled.socket.valid()) connections->KeepControl(dialled.socket);
        connections->Tell(DialledEvent(number, dialled.status), std::move(dialled.socket),
                          std::move(dialled.place));
      });
  return absl::OkStatus();
}

// ---- wires

OpenWires* EngineNetwork::Wires(std::uint32_t purpose) const {
  if (purpose == static_cast<std::uint32_t>(DoorPurpose::kWire)) return node_->wires_.get();
  if (purpose == static_cast<std::uint32_t>(DoorPurpose::kExchange)) {
    return node_->exchanges_.get();
  }
  return nullptr;
}

absl::Status EngineNetwork::OpenWire(const v1::EngineWireOpen& request) {
  OpenWires* const wires = Wires(request.purpose());
  if (wires == nullptr) return Wrong("a wire of no purpose");
  const WireKey wire_key(request.purpose(), request.wire_id());
  if (wires_.contains(wire_key)) return Wrong("a wire that it has open");
  if (wires_.size() >= kMostWires) return Wrong("too many wires");
  const std::optional<DoorKey> key = ToKey(request.key());
  if (!key.has_value()) return Wrong("a wire with a key of another length");
  if (request.self() < 0 || request.self() >= request.addresses_size() ||
      request.addresses_size() != request.node_names_size()) {
    return Wrong("a wire without a place for this node");
  }
  OwnWire wire;
  wire.opening = request.opening();
  const std::size_t bytes = BytesOf(request);
  wire.place = wire_bytes_.Take(bytes);
  wire.user_place = user_places_->wire_bytes.Take(bytes);
  if (wire.place == nullptr || wire.user_place == nullptr) {
    wire.problem = absl::ResourceExhaustedError(
        absl::StrCat("the wires of this ", wire.place == nullptr ? "job" : "user's jobs",
                     " have too many nodes"));
  } else {
    WireMembership membership;
    membership.wire_id = request.wire_id();
    membership.self = NodeIndex(request.self());
    membership.key = request.key();
    membership.addresses.assign(request.addresses().begin(), request.addresses().end());
    membership.node_names.assign(request.node_names().begin(), request.node_names().end());
    wire.group = node_->door_->NewGroup();
    const bool opened =
        wires->Open(membership, *key, wire.group, user_places_->untaken,
                    [connections = connections_, wires, wire_key, opening = wire.opening,
                     places = user_places_](NodeIndex from, std::uint32_t stream, UniqueFd socket) {
                      CountedPlaces::Place place = places->unsent.Take();
                      // The connection ends; the wire may have been closed meanwhile.
                      if (place == nullptr) {
                        static_cast<void>(wires->Taken(wire_key.second, 1));
                        return;
                      }
                      connections->Tell(WireEvent(wire_key, opening, from, stream,
                                                  /*dialled_here=*/false, absl::OkStatus()),
                                        std::move(socket), std::move(place));
                    });
    if (opened) {
      node_->door_->Reconsider();
    } else {
      wire.problem = absl::AlreadyExistsError("another job on this node has a wire of this number");
    }
  }
  if (!wire.problem.ok()) {
    wire.place = wire.user_place = nullptr;
    const NodeIndex other(request.self() == 0 ? 1 : 0);
    TellWire(wire_key, wire.opening, other, 0, wire.problem);
  }
  wires_.emplace(wire_key, std::move(wire));
  return absl::OkStatus();
}

void EngineNetwork::CloseWire(WireKey key) {
  const auto found = wires_.find(key);
  if (found == wires_.end()) return;
  const OwnWire& wire = found->second;
  if (wire.problem.ok()) {
    Wires(key.first)->Close(key.second);
    // Costs the door's thread a look each time, which no engine gets for nothing.
    if (wire.dialled) node_->door_->Abandon(wire.group);
  }
  wires_.erase(found);
}

absl::Status EngineNetwork::DialWire(const v1::EngineWireDial& request) {
  const WireKey key(request.purpose(), request.wire_id());
  const NodeIndex to(request.to());
  const std::uint32_t stream = request.stream();
  const auto found = wires_.find(key);
  if (found == wires_.end()) return Wrong("a dial of a wire that it has not open");
  const OwnWire& wire = found->second;
  if (!wire.problem.ok()) {
    TellWire(key, wire.opening, to, stream, wire.problem);
    return absl::OkStatus();
  }
  absl::StatusOr<DialRequest> dial = Wires(key.first)->MakeRequest(key.second, to, stream);
  if (!dial.ok()) {
    TellWire(key, wire.opening, to, stream, dial.status());
    return absl::OkStatus();
  }
  CountedPlaces::Place place = wire_dial_places_.Take();
  CountedPlaces::Place user_place = user_places_->wire_dials.Take();
  if (place == nullptr || user_place == nullptr) {
    TellWire(key, wire.opening, to, stream,
             TooMany(place == nullptr, kMostWireDials, UserPlaces::kMostWireDials,
                     "connections are being opened"));
    return absl::OkStatus();
  }
  found->second.dialled = true;
  dial->user = user_;
  dial->flags = node_->options_.door_flags;
  dial->deadline = Clock::now() + node_->options_.wire_patience;
  dial->done = [connections = connections_, key, opening = wire.opening, to, stream,
                places = user_places_, place = std::move(place),
                user_place = std::move(user_place)](absl::StatusOr<DoorConnection> outcome) {
    Dialled dialled = TakePlace(outcome.ok() ? absl::StatusOr<UniqueFd>(std::move(outcome->socket))
                                             : absl::StatusOr<UniqueFd>(outcome.status()),
                                *places);
    connections->Tell(WireEvent(key, opening, to, stream, /*dialled_here=*/true, dialled.status),
                      std::move(dialled.socket), std::move(dialled.place));
  };
  node_->door_->Dial(*std::move(dial));
  return absl::OkStatus();
}

absl::Status EngineNetwork::WireTaken(const v1::EngineWireTaken& request) {
  const WireKey key(request.purpose(), request.wire_id());
  const auto found = wires_.find(key);
  if (found == wires_.end() || !found->second.problem.ok() ||
      !Wires(key.first)->Taken(key.second, request.count())) {
    return Wrong("room for more connections of a wire than it was sent");
  }
  return absl::OkStatus();
}

void EngineNetwork::TellWire(const WireKey& key, std::uint64_t opening, NodeIndex node,
                             std::uint32_t stream, const absl::Status& why) {
  connections_->Tell(WireEvent(key, opening, node, stream, /*dialled_here=*/true, why), {});
}

}  // namespace ringd
