#include "daemon/service/daemon.h"

#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/congestion_control.h"
#include "backends/ucx/ucx_transport.h"
#include "daemon/config/host_port.h"
#include "daemon/config/network_identity.h"
#include "daemon/config/reload.h"
#include "daemon/door/cluster_key.h"
#include "daemon/logging/log.h"
#include "daemon/rank_exchange/rank_exchange_sockets.h"
#include "daemon/service/start_check.h"
#include "daemon/service/tcp_backend.h"
#include "daemon/version.h"
#include "proto/base/clock.h"
#include "proto/base/thread_priority.h"

namespace ringd {
namespace {

// How long each part may take to tell its peers that ringd stops.
constexpr Clock::duration kGoodbye = std::chrono::seconds(2);

absl::StatusOr<std::unique_ptr<Transport>> MakeTransport(const Config& config, Door* door,
                                                         bool has_cluster_key) {
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
  auto tcp = MakeTcpBackend(config, options, door, has_cluster_key);
  // One-node jobs need no address.
  if (!absl::IsNotFound(tcp.status())) return tcp;
  LogWarning(absl::StrCat("no job can have ranks on other nodes: ", tcp.status().message()));
  return std::unique_ptr<Transport>();
}

// Null: no job of this node has a rank exchange; the log says why.
std::unique_ptr<RankExchangeSockets> MakeRankExchange(const Config& config, Door* door,
                                                      bool has_cluster_key) {
  if (!config.rank_exchange || config.backend == "none") return nullptr;
  auto sockets = OpenDataDoor(config, door, DoorPurpose::kExchange, has_cluster_key);
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

EngineOptions MakeEngineOptions(const Config& config, const Door& door) {
  EngineOptions options;
  options.config = config;
  options.version = kRingdVersion;
  options.own_addresses = OwnAddresses(config, door);
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
  return MakeTransport(config, door->get(), !key->empty()).status();
}

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(const Config& config,
                                                      const std::string& config_file) {
  std::unique_ptr<Daemon> daemon(new Daemon);
  daemon->config_ = config;
  if (absl::Status status = daemon->StartParts(config, config_file); !status.ok()) return status;
  return daemon;
}

absl::Status Daemon::StartParts(const Config& config, const std::string& config_file) {
  const absl::StatusOr<std::string> cluster_key = ReadClusterKey(config.cluster_key_file);
  if (!cluster_key.ok()) return cluster_key.status();
  cluster_key_ = *cluster_key;
  absl::StatusOr<std::unique_ptr<Door>> door = OpenDoor(config, !cluster_key_.empty());
  if (!door.ok()) return door.status();
  door_ = *std::move(door);
  peer_address_ = FormatHostPort({config.advertised_host, ParseHostPort(door_->address())->port});
  absl::StatusOr<std::unique_ptr<Transport>> transport =
      MakeTransport(config, door_.get(), !cluster_key_.empty());
  if (!transport.ok()) return transport.status();
  SocketPeerNetworkOptions network_options;
  network_options.door_flags = cluster_key_.empty() ? 0 : kDoorHasClusterKey;
  absl::StatusOr<std::unique_ptr<SocketPeerNetwork>> network =
      SocketPeerNetwork::Create(door_.get(), network_options);
  if (!network.ok()) return network.status();
  network_ = *std::move(network);

  record_ = std::make_unique<EngineRecord>(config.remembered_jobs);
  EngineOptions engine_options = MakeEngineOptions(config, *door_);
  engine_options.has_cluster_key = !cluster_key_.empty();
  engine_options.listener = record_.get();
  engine_options.plans = std::make_unique<PlanStore>(config.state_dir);
  SupervisorOptions options;
  options.config = config;
  options.version = kRingdVersion;
  options.peer_address = peer_address_;
  options.backend = *transport == nullptr ? "none" : std::string((*transport)->name());
  options.config_file = config_file;
  options.cluster_key = cluster_key_;
  engine_ = std::make_unique<Engine>(std::move(engine_options), *std::move(transport),
                                     MakeRankExchange(config, door_.get(), !cluster_key_.empty()),
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
  supervisor_ = std::make_unique<Supervisor>(std::move(options), lobby_.get(), gpus_.get(),
                                             engine_.get(), record_.get());
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
       [this] { supervisor_->CountRefusedAttach(); }});
  if (!listener.ok()) return listener.status();
  listener_ = *std::move(listener);
  return absl::OkStatus();
}

Daemon::~Daemon() { Stop(); }

absl::Status Daemon::Reload(const Config& loaded) {
  Config config = config_;
  TakeReloaded(loaded, config);
  if (absl::Status status = listener_->Reload(config); !status.ok()) return status;
  config_ = config;
  engine_->Reload(config_);
  supervisor_->Reload(config_);
  return absl::OkStatus();
}

void Daemon::Drain() {
  listener_->Drain();
  supervisor_->Drain();
  engine_->Drain();
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
  if (local_server_ != nullptr) local_server_->Shutdown(Clock::now() + kGoodbye);
}

}  // namespace ringd
