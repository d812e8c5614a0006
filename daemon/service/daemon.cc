#include "daemon/service/daemon.h"

#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/congestion_control.h"
#include "daemon/channel/engine_settings.h"
#include "daemon/config/host_port.h"
#include "daemon/config/network_identity.h"
#include "daemon/config/reload.h"
#include "daemon/door/cluster_key.h"
#include "daemon/logging/log.h"
#include "daemon/service/start_check.h"
#include "daemon/supervisor/data_addresses.h"
#include "daemon/supervisor/engine_program.h"
#include "daemon/supervisor/engine_trial.h"
#include "daemon/version.h"
#include "proto/base/clock.h"
#include "proto/base/thread_priority.h"

namespace ringd {
namespace {

// How long callers have to take their answers.
constexpr Clock::duration kGoodbye = std::chrono::seconds(2);

// Where other nodes reach this one for data; empty: they don't, and the log says why.
//   What is wrong with the settings.
absl::StatusOr<std::string> WireAddress(const Config& config, Door* door) {
  if (config.backend != "tcp") return std::string();
  absl::StatusOr<std::string> address = OpenDataAddresses(config, door, DoorPurpose::kWire);
  // One-node jobs need no address.
  if (!absl::IsNotFound(address.status())) return address;
  LogWarning(absl::StrCat("no job can have ranks on other nodes: ", address.status().message()));
  return std::string();
}

// The same for ranks; empty: no job of this node has a rank exchange.
std::string ExchangeAddress(const Config& config, Door* door) {
  if (!config.rank_exchange || config.backend == "none") return "";
  absl::StatusOr<std::string> address = OpenDataAddresses(config, door, DoorPurpose::kExchange);
  if (address.ok()) return *std::move(address);
  LogWarning(absl::StrCat("jobs over several nodes do without a rank exchange: ",
                          address.status().message()));
  return "";
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

v1::EngineStart TrialStart(const Config& config, const std::string& wire_address) {
  v1::EngineStart start;
  start.set_version(kRingdVersion);
  WriteSettings(config, start.mutable_settings());
  start.set_wire_address(wire_address);
  return start;
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
  const absl::StatusOr<std::string> wire_address = WireAddress(config, door->get());
  if (!wire_address.ok()) return wire_address.status();
  // FindStartProblems has said so.
  const absl::StatusOr<EngineProgram> program = EngineProgram::Open(config);
  if (!program.ok()) return absl::OkStatus();
  return TryEngine(*program, EngineArguments().For(config), TrialStart(config, *wire_address))
      .status();
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
  absl::StatusOr<std::string> wire_address = WireAddress(config, door_.get());
  if (!wire_address.ok()) return wire_address.status();
  absl::StatusOr<EngineProgram> program = EngineProgram::Open(config);
  if (!program.ok()) return program.status();
  absl::StatusOr<std::string> backend =
      TryEngine(*program, EngineArguments().For(config), TrialStart(config, *wire_address));
  if (!backend.ok()) return backend.status();
  NodeNetworkOptions network_options;
  network_options.door_flags = cluster_key_.empty() ? 0 : kDoorHasClusterKey;
  network_ = std::make_unique<NodeNetwork>(door_.get(), &isolated_, network_options);
  plans_ = std::make_unique<PlanStore>(config.state_dir);

  EnginesOptions engines_options;
  engines_options.config = config;
  engines_options.version = kRingdVersion;
  engines_options.program = std::make_shared<const EngineProgram>(*std::move(program));
  engines_options.peer_address = peer_address_;
  engines_options.own_addresses = OwnAddresses(config, *door_);
  engines_options.wire_address = *std::move(wire_address);
  engines_options.exchange_address = ExchangeAddress(config, door_.get());
  engines_options.has_cluster_key = !cluster_key_.empty();
  absl::StatusOr<std::unique_ptr<Engines>> engines =
      Engines::Start(std::move(engines_options), network_.get(), plans_.get(), &isolated_);
  if (!engines.ok()) return engines.status();
  engines_ = *std::move(engines);
  // All threads that are started from here on, and none that starts engines: they would inherit it.
  ServeBesideEngine();
  door_->Start();

  absl::StatusOr<std::unique_ptr<Lobby>> lobby = Lobby::Create(&isolated_);
  if (!lobby.ok()) return lobby.status();
  lobby_ = *std::move(lobby);
  GpuFinderOptions gpu_options;
  gpu_options.cuda_library = config.cuda_library;
  gpu_options.nccl_library = config.nccl_library;
  gpus_ = std::make_unique<GpuFinder>(std::move(gpu_options));
  drain_ = std::make_unique<NodeDrain>([this](bool draining) { ApplyDrain(draining); });
  supervisor_ = std::make_unique<Supervisor>(
      SupervisorOptions{config, kRingdVersion, peer_address_, cluster_key_, config_file,
                        *std::move(backend)},
      lobby_.get(), gpus_.get(), engines_.get(), drain_.get());
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
       [this] { supervisor_->CountRefusedAttach(); },
       [this](pid_t pid, Clock::time_point since) { return engines_->IsEngine(pid, since); },
       [this] { return drain_->state().IsDraining(); }});
  if (!listener.ok()) return listener.status();
  listener_ = *std::move(listener);
  return absl::OkStatus();
}

Daemon::~Daemon() { Stop(); }

absl::Status Daemon::UseLinks() {
  absl::StatusOr<std::string> wire_address = WireAddress(config_, door_.get());
  if (!wire_address.ok()) return wire_address.status();
  engines_->UseAddresses(*wire_address, ExchangeAddress(config_, door_.get()));
  const absl::Status listens = ListenOnPeerInterface();
  if (listens.ok()) LogInfo("all interfaces carry data for jobs to come");
  return listens;
}

absl::Status Daemon::ListenOnPeerInterface() {
  absl::Status status;
  for (const std::string& host : FindPeerHosts(config_)) status.Update(door_->AlsoListenOn(host));
  return status;
}

void Daemon::Reload(const Config& loaded, std::shared_ptr<Admission> admission) {
  TakeReloaded(loaded, config_);
  engines_->Reload(config_);
  supervisor_->Reload(config_);
  // Last: an engine that stands ready may be one for the users of before.
  listener_->Use(std::move(admission));
}

void Daemon::ApplyDrain(bool draining) {
  engines_->SetDraining(draining);
  local_server_->SetServing(!draining);
}

void Daemon::Stop() {
  // Nobody new; then the engines tell trainers and nodes why; then the connections close.
  if (listener_ != nullptr) listener_->Stop();
  if (lobby_ != nullptr) {
    lobby_->Stop(absl::StrCat("ringd on ", config_.node_name, " was stopped"));
  }
  if (gpus_ != nullptr) gpus_->Stop();
  if (engines_ != nullptr) engines_->Stop();
  if (door_ != nullptr) door_->Stop();
  if (network_ != nullptr) network_->Stop();
  if (local_server_ != nullptr) local_server_->Shutdown(Clock::now() + kGoodbye);
}

}  // namespace ringd
