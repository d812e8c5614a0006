#include "daemon/supervisor/node_network.h"

#include <utility>

#include "daemon/supervisor/engine_network.h"

namespace ringd {

NodeNetwork::NodeNetwork(Door* door, IsolatedExecutor* isolated, const NodeNetworkOptions& options)
    : door_(door),
      isolated_(isolated),
      options_(options),
      wires_(std::make_shared<OpenWires>(DoorPurpose::kWire, options.most_untaken)),
      exchanges_(std::make_shared<OpenWires>(DoorPurpose::kExchange, options.most_untaken)),
      control_(door, options.door_flags) {
  door_->SetReception(DoorPurpose::kWire, wires_);
  door_->SetReception(DoorPurpose::kExchange, exchanges_);
  control_.Start({[this](ExpectationId id, uid_t user, std::string from, UniqueFd socket) {
                    OnAdmitted(id, user, std::move(from), std::move(socket));
                  },
                  [this](ExpectationId id, const RefusedNode& node) { OnRefused(id, node); }});
}

NodeNetwork::~NodeNetwork() {
  door_->RemoveReception(DoorPurpose::kWire, wires_.get());
  door_->RemoveReception(DoorPurpose::kExchange, exchanges_.get());
}

std::unique_ptr<EngineNetwork> NodeNetwork::AddEngine(uid_t user, std::string job_id,
                                                      EngineConnections::Send send) {
  std::shared_ptr<UserPlaces> places;
  {
    const MutexLock lock(mutex_);
    std::erase_if(places_, [](const auto& entry) { return entry.second.expired(); });
    std::weak_ptr<UserPlaces>& known = places_[user];
    places = known.lock();
    if (places == nullptr) known = places = std::make_shared<UserPlaces>();
  }
  return std::unique_ptr<EngineNetwork>(
      new EngineNetwork(this, user, std::move(job_id), std::move(send), std::move(places)));
}

ExpectationId NodeNetwork::Expect(std::shared_ptr<EngineConnections> engine, std::uint64_t number,
                                  ExpectedJob job) {
  // Who is let in at once waits until it is known where he goes.
  const MutexLock lock(mutex_);
  const ExpectationId id = control_.Expect(std::move(job));
  routes_.emplace(id, Route{std::move(engine), number});
  return id;
}

void NodeNetwork::StopExpecting(ExpectationId id) {
  control_.StopExpecting(id);
  const MutexLock lock(mutex_);
  routes_.erase(id);
}

std::optional<NodeNetwork::Route> NodeNetwork::Find(ExpectationId id) {
  const MutexLock lock(mutex_);
  const auto found = routes_.find(id);
  if (found == routes_.end()) return std::nullopt;
  return found->second;
}

void NodeNetwork::OnAdmitted(ExpectationId id, uid_t user, std::string from, UniqueFd socket) {
  const std::optional<Route> route = Find(id);
  CountedPlaces::Place place = route.has_value() ? route->engine->TakeUnsent() : nullptr;
  if (place == nullptr || !route->engine->AddConnection()) return control_.Release(user);
  v1::EngineNetworkEvent event;
  v1::EngineNodeAdmitted& admitted = *event.mutable_node_admitted();
  admitted.set_expectation(route->number);
  admitted.set_from(std::move(from));
  route->engine->KeepControl(socket);
  route->engine->Tell(std::move(event), std::move(socket), std::move(place));
}

void NodeNetwork::OnRefused(ExpectationId id, const RefusedNode& node) {
  const std::optional<Route> route = Find(id);
  if (!route.has_value()) return;
  v1::EngineNetworkEvent event;
  v1::EngineNodeRefused& refused = *event.mutable_node_refused();
  refused.set_expectation(route->number);
  refused.set_node_name(node.node_name);
  refused.set_from(node.from);
  refused.set_uid(node.uid);
  refused.set_has_cluster_key(node.has_cluster_key);
  route->engine->Tell(std::move(event), {});
}

}  // namespace ringd
