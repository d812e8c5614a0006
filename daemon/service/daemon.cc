#include "daemon/service/daemon.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backends/congestion_control.h"
#include "backends/tcp/tcp_transport.h"
#include "backends/ucx/ucx_transport.h"
#include "daemon/config/host_port.h"
#include "daemon/config/reload.h"
#include "daemon/door/cluster_key.h"
#include "daemon/logging/log.h"
#include "daemon/rank_exchange/rank_exchange_sockets.h"
#include "daemon/service/start_check.h"
#include "daemon/supervisor/data_addresses.h"
#include "daemon/version.h"
#include "proto/base/clock.h"
#include "proto/base/thread_priority.h"

namespace ringd {
namespace {

// How long each part may take to tell its peers that ringd stops.
constexpr Clock::duration kGoodbye = std::chrono::seconds(2);

absl::StatusOr<std::unique_ptr<WireSockets>> OpenWireSockets(const Config& config, Door* door,
                                                             RemoteNetwork* network,
                                                             DoorPurpose purpose) {
  absl::StatusOr<std::string> address = OpenDataAddresses(config, door, purpose);
  if (!address.ok()) return address.status();
  return network->MakeWireSockets(purpose, *std::move(address));
}

absl::StatusOr<std::unique_ptr<Transport>> MakeTransport(const Config& config, Door* door,
                                                         RemoteNetwork* network) {
  if (config.backend == "none") return std::unique_ptr<Transport>();
  TransportOptions options;
  options.interfaces = config.data_interfaces;
  options.transports = config.transports;
  options.streams_per_neighbour = config.streams_per_neighbour == kAutoCount
                                      ? kAutoStreams
                                      : static_cast<int>(config.streams_per_neighbour);
  options.log = [](const std::string& line) { LogInfo(line); };
  options.log_error = [](const std::string& line) { LogError(line); };
  options.congestion_control = config.congestion_control;
  if (config.backend == "ucx") return CreateUcxTransport(options);
  auto wires = OpenWireSockets(config, door, network, DoorPurpose::kWire);
  if (wires.ok()) return CreateTcpTransport(options, *std::move(wires));
  // One-node jobs need no address.
  if (!absl::IsNotFound(wires.status())) return wires.status();
  LogWarning(absl::StrCat("no job can have ranks on other nodes: ", wires.status().message()));
  return std::unique_ptr<Transport>();
}

// Null: no job of this node has a rank exchange; the log says why.
std::unique_ptr<RankExchangeSockets> MakeRankExchange(const Config& config, Door* door,
                                                      RemoteNetwork* network) {
  if (!config.rank_exchange || config.backend == "none") return nullptr;
  auto sockets = OpenWireSockets(config, door, network, DoorPurpose::kExchange);
  absl::Status status = sockets.status();
  if (status.ok()) {
    auto opened = RankExchangeSockets::Create(*std::move(sockets));
    if (opened.ok()) return *std::move(opened);
    status = opened.status();
  }
  LogWarning(absl::StrCat("jobs over several nodes do without an exchange between ranks: ",
                          status.message()));
  return nullptr;
}

absl::StatusOr<std::unique_ptr<Door>> OpenDoor(const Config& config, bool has_cluster_key) {
  absl::StatusOr<CongestionControl> control = ChooseCongestionControl(config.congestion_control);
  if (!control.ok()) return control.status();
  DoorOptions options;
  options.address = config.peer_address;
  options.node_name = config.node_name;
  options.challenge_flags = has_cluster_key ? kDoorHasClusterKey : 0;
  options.congestion_control = *std::move(control);
  absl::StatusOr<std::unique_ptr<Door>> door = Door::Open(std::move(options));
  if (door.ok()) return door;
  return absl::Status(door.status().code(),
                      absl::StrCat("peer_address ", config.peer_address,
                                   " can't be served: ", door.status().message()));
}

// What a launcher may call the door of this node.
std::set<std::string> OwnAddresses(const Config& config, const Door& door) {
  const HostPort listening = *ParseHostPort(door.address());
  std::set<std::string> addresses;
  for (const std::string& host : {listening.host, config.advertised_host, config.node_name}) {
    addresses.insert(FormatHostPort({host, listening.port}));
  }
  return addresses;
}

EngineOptions MakeEngineOptions(const Config& config, const std::string& config_file,
                                const std::string& peer_address, const Door& door) {
  EngineOptions options;
  options.config = config;
  options.version = kRingdVersion;
  options.peer_address = peer_address;
  options.own_addresses = OwnAddresses(config, door);
  options.config_file = config_file;
  if (config.flat_all_reduce_bytes != kAutoBytes) {
    options.algorithms.flat_all_reduce_bytes = config.flat_all_reduce_bytes;
  }
  if (config.small_all_reduce_bytes != kAutoBytes) {
    options.algorithms.small_all_reduce_bytes = config.small_all_reduce_bytes;
  }
  options.algorithms.small_broadcast_bytes = config.small_broadcast_bytes;
  options.algorithms.chunk_bytes = static_cast<std::uint32_t>(config.chunk_bytes);
  return options;
}

}  // namespace

absl::Status Daemon::Check(const Config& config) {
  const absl::StatusOr<std::string> key = ReadClusterKey(config.cluster_key_file);
  if (!key.ok()) return key.status();
  // FindStartProblems has said so.
  if (!CheckPeerAddress(config.peer_address).ok()) return absl::OkStatus();
  // On any port: a ringd may be serving on the one that is set.
  Config elsewhere = config;
  elsewhere.peer_address = FormatHostPort({ParseHostPort(config.peer_address)->host, 0});
  const absl::StatusOr<std::unique_ptr<Door>> door = OpenDoor(elsewhere, !key->empty());
  if (!door.ok()) return door.status();
  RemoteNetwork network(0, [](const v1::EngineNetworkRequest& /*request*/) {});
  return MakeTransport(config, door->get(), &network).status();
}

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(const Config& config,
                                                      const std::string& config_file) {
  std::unique_ptr<Daemon> daemon(new Daemon);
  daemon->config_ = config;
  if (absl::Status status = daemon->StartParts(config, config_file); !status.ok()) return status;
  return daemon;
}

// One engine has the jobs of all users, so that its control streams use the door directly; wires go
// through both halves of what an engine process will use.
void Daemon::JoinNetwork() {
  NodeNetworkOptions options;
  options.door_flags = cluster_key_.empty() ? 0 : kDoorHasClusterKey;
  node_network_ = std::make_unique<NodeNetwork>(door_.get(), options);
  remote_network_ =
      std::make_unique<RemoteNetwork>(0, [this](const v1::EngineNetworkRequest& request) {
        const absl::Status status = engine_network_->OnRequest(request);
        if (!status.ok()) LogError(status.message());
      });
  engine_network_ = node_network_->AddEngine(
      0, "", [this](const v1::EngineNetworkEvent& event, std::vector<UniqueFd> fds) {
        remote_network_->OnEvent(event, std::move(fds));
      });
  control_door_ = std::make_unique<LocalControlDoor>(door_.get(), options.door_flags);
}

absl::Status Daemon::StartParts(const Config& config, const std::string& config_file) {
  const absl::StatusOr<std::string> cluster_key = ReadClusterKey(config.cluster_key_file);
  if (!cluster_key.ok()) return cluster_key.status();
  cluster_key_ = *cluster_key;
  absl::StatusOr<std::unique_ptr<Door>> door = OpenDoor(config, !cluster_key_.empty());
  if (!door.ok()) return door.status();
  door_ = *std::move(door);
  peer_address_ = FormatHostPort({config.advertised_host, ParseHostPort(door_->address())->port});
  JoinNetwork();
  absl::StatusOr<std::unique_ptr<Transport>> transport =
      MakeTransport(config, door_.get(), remote_network_.get());
  if (!transport.ok()) return transport.status();
  absl::StatusOr<std::unique_ptr<SocketPeerNetwork>> network =
      SocketPeerNetwork::Create(control_door_.get(), {});
  if (!network.ok()) return network.status();
  network_ = *std::move(network);

  EngineOptions engine_options = MakeEngineOptions(config, config_file, peer_address_, *door_);
  engine_options.cluster_key = cluster_key_;
  engine_ = std::make_unique<Engine>(std::move(engine_options), *std::move(transport),
                                     MakeRankExchange(config, door_.get(), remote_network_.get()),
                                     network_.get());
  engine_->Start();
  // The threads of the door, of gRPC and of the listener are started by this one.
  ServeBesideEngine();
  door_->Start();

  absl::StatusOr<std::unique_ptr<Lobby>> lobby = Lobby::Create();
  if (!lobby.ok()) return lobby.status();
  lobby_ = *std::move(lobby);
  GpuFinderOptions gpu_options;
  gpu_options.cuda_library = config.cuda_library;
  gpu_options.nccl_library = config.nccl_library;
  gpus_ = std::make_unique<GpuFinder>(std::move(gpu_options));
  supervisor_ = std::make_unique<Supervisor>(lobby_.get(), gpus_.get(), engine_.get());
  absl::StatusOr<std::unique_ptr<LocalServer>> local_server = LocalServer::Start(supervisor_.get());
  if (!local_server.ok()) return local_server.status();
  local_server_ = *std::move(local_server);

  absl::StatusOr<std::unique_ptr<AttachListener>> listener = AttachListener::Start(
      config,
      {[this](std::unique_ptr<SessionResources> session) { lobby_->Add(std::move(session)); },
       [this](UniqueFd connection, const AdmittedUser& user) {
         return local_server_->AddConnection(std::move(connection),
                                             Caller{user.uid, user.is_operator});
       },
       [this](UniqueFd connection) { local_server_->RefuseConnection(std::move(connection)); },
       [this] { engine_->CountRefusedAttach(); }});
  if (!listener.ok()) return listener.status();
  listener_ = *std::move(listener);
  return absl::OkStatus();
}

Daemon::~Daemon() { Stop(); }

absl::Status Daemon::ReopenTransport(const Config& config) {
  absl::StatusOr<std::unique_ptr<Transport>> transport =
      MakeTransport(config, door_.get(), remote_network_.get());
  if (!transport.ok()) return transport.status();
  if (*transport != nullptr) engine_->ReplaceTransport(*std::move(transport));
  return absl::OkStatus();
}

absl::Status Daemon::Reload(const Config& loaded) {
  Config config = config_;
  TakeReloaded(loaded, config);
  if (absl::Status status = listener_->Reload(config); !status.ok()) return status;
  config_ = config;
  engine_->Reload(config_);
  return absl::OkStatus();
}

void Daemon::Drain() {
  listener_->Drain();
  engine_->Drain();
  control_door_->RefuseNewJobs();
  local_server_->SetServing(false);
}

void Daemon::Stop() {
  // Nobody new; then the engine tells trainers and nodes why; then the connections close.
  if (listener_ != nullptr) listener_->Stop();
  if (lobby_ != nullptr) {
    lobby_->Stop(absl::StrCat("ringd on ", config_.node_name, " was stopped"));
  }
  // It tells those who wait by way of the engine.
  if (gpus_ != nullptr) gpus_->Stop();
  if (engine_ != nullptr) engine_->Stop();
  if (door_ != nullptr) door_->Stop();
  if (network_ != nullptr) network_->Shutdown(Clock::now() + kGoodbye);
  if (node_network_ != nullptr) node_network_->Stop();
  if (local_server_ != nullptr) local_server_->Shutdown(Clock::now() + kGoodbye);
}

}  // namespace ringd
