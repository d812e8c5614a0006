#include "daemon/engine_process/engine_service.h"

#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/channel/engine_settings.h"
#include "daemon/channel/engine_status.h"
#include "daemon/engine_process/engine_transport.h"
#include "daemon/lanes/rank_exchange/rank_exchange_sockets.h"
#include "daemon/logging/log.h"
#include "daemon/logging/log_setup.h"
#include "daemon/version.h"
#include "proto/base/thread_priority.h"
#include "proto/shm/user_account.h"

namespace ringd {
namespace {

// How long each part may take to tell its peers that the engine stops.
constexpr Clock::duration kGoodbye = std::chrono::seconds(2);

// A ringd sees within a second that an engine's time is up, and ends it within some more.
constexpr Clock::duration kEndOfStoppedEngine = std::chrono::seconds(5);
// Descriptors of a session's frame, without and with a pidfd.
constexpr std::size_t kSessionFds = 4;
// Of a start's.
constexpr std::size_t kStartFds = 3;

EngineOptions MakeOptions(const v1::EngineStart& start, const Config& config) {
  EngineOptions options;
  options.config = config;
  options.version = start.version();
  options.own_addresses = {start.own_addresses().begin(), start.own_addresses().end()};
  options.has_cluster_key = start.has_cluster_key();
  options.first_generation = start.first_generation();
  options.first_communicator = start.first_communicator();
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

EngineService::EngineService(std::vector<std::string> missing)
    : missing_walls_(std::move(missing)) {}

EngineService::~EngineService() {
  loop_.reset();
  engine_.reset();
}

absl::Status EngineService::Open(UniqueFd channel) {
  // The channel's thread gives way to the engine's, and so do those that it starts: but the
  // engine's own.
  absl::StatusOr<std::unique_ptr<ChannelLoop>> loop = ChannelLoop::Start("ringd-channel");
  if (!loop.ok()) return loop.status();
  const MutexLock lock(mutex_);
  loop_ = *std::move(loop);
  absl::StatusOr<std::shared_ptr<Channel>> added =
      loop_->Add(std::move(channel), {[this](ChannelFrame frame) { OnFrame(std::move(frame)); },
                                      [this](const absl::Status& why) {
                                        End(absl::StrCat("ringd has gone: ", why.message()),
                                            /*ringd_has_gone=*/true);
                                      }});
  if (!added.ok()) return added.status();
  channel_ = *std::move(added);
  return absl::OkStatus();
}

bool EngineService::Wait(Clock::duration patience) {
  const Clock::time_point deadline = Clock::now() + patience;
  MutexLock lock(mutex_);
  while (!ends_ && Clock::now() < deadline) changed_.WaitUntil(mutex_, deadline);
  return ends_;
}

void EngineService::End(const std::string& why, bool ringd_has_gone) {
  const MutexLock lock(mutex_);
  if (std::exchange(ends_, true)) return;
  ringd_has_gone_ = ringd_has_gone;
  if (!why.empty()) LogInfo(why);
  changed_.NotifyAll();
}

void EngineService::Beat() {
  {
    const MutexLock lock(mutex_);
    if (!started_) return;
  }
  const EngineActivity::Moment moment = engine_->activity();
  v1::FromEngine word;
  word.mutable_beat()->set_heartbeat(engine_->heartbeat());
  word.mutable_beat()->set_doing(static_cast<std::uint32_t>(moment.doing));
  word.mutable_beat()->set_communicator(moment.communicator);
  Send(word);
}

void EngineService::Stop() {
  std::shared_ptr<Channel> channel;
  bool ringd_has_gone = false;
  {
    const MutexLock lock(mutex_);
    channel = channel_;
    started_ = false;
    ringd_has_gone = ringd_has_gone_;
  }
  const Clock::time_point deadline = Clock::now() + kGoodbye;
  // Only the channel's thread says that this process ends; from then on it carries out no frame.
  if (engine_ != nullptr)
    engine_->Stop(ringd_has_gone ? "was killed or has crashed" : "was stopped");
  if (network_ != nullptr) network_->Shutdown(deadline);
  while (channel != nullptr && channel->WaitsToSend() && Clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void EngineService::Send(const v1::FromEngine& word) {
  std::shared_ptr<Channel> channel;
  {
    const MutexLock lock(mutex_);
    channel = channel_;
  }
  if (channel != nullptr) channel->Send(word.SerializeAsString());
}

void EngineService::OnFrame(ChannelFrame frame) {
  {
    const MutexLock lock(mutex_);
    if (ends_) return;
  }
  v1::ToEngine order;
  absl::Status status = absl::InvalidArgumentError("a frame that is none");
  const bool is_order = order.ParseFromString(frame.bytes);
  const bool is_start = is_order && order.has_start();
  if (is_order) status = Obey(std::move(order), std::move(frame.fds));
  if (status.ok()) return;
  LogError(absl::StrCat("ringd's word is refused: ", status.message()));
  if (is_start) {
    v1::FromEngine refused;
    WriteStatus(status, refused.mutable_started()->mutable_status());
    Send(refused);
  }
  End("");
}

absl::Status EngineService::Obey(v1::ToEngine order, std::vector<UniqueFd> fds) {
  if (order.has_start()) return StartEngine(order.start(), std::move(fds));
  if (order.has_stop()) {
    End("");
    return absl::OkStatus();
  }
  if (engine_ == nullptr) return absl::FailedPreconditionError("nothing has been started");
  switch (order.what_case()) {
    case v1::ToEngine::kSession:
      return Attach(order.session(), std::move(fds));
    case v1::ToEngine::kCall:
      return BeginCall(order.call());
    case v1::ToEngine::kCallOver:
      GiveUpCall(order.call_over().number());
      return absl::OkStatus();
    case v1::ToEngine::kNetwork:
      remote_->OnEvent(order.network(), std::move(fds));
      return absl::OkStatus();
    case v1::ToEngine::kReload: {
      const absl::StatusOr<Config> config = ReadSettings(order.reload().settings());
      if (!config.ok()) return config.status();
      SetLogLevel(config->log_level);
      engine_->Reload(*config);
      return absl::OkStatus();
    }
    case v1::ToEngine::kDrain:
      engine_->SetDraining(!order.drain().undo());
      return absl::OkStatus();
    case v1::ToEngine::kTurnedAway:
      engine_->NoteTurnedAway(order.turned_away().why());
      return absl::OkStatus();
    default:
      return absl::InvalidArgumentError("an order that this engine does not know");
  }
}

absl::Status EngineService::OpenShares(const v1::EngineStart& start,
                                       const std::vector<UniqueFd>& fds) {
  if (fds.size() != kStartFds || start.slot() >= kMostEngines) {
    return absl::InvalidArgumentError("a start without the segments that engines share");
  }
  absl::StatusOr<MemoryMapping> account =
      MemoryMapping::MapSealed(fds[0].get(), sizeof(UserAccountSegment));
  if (!account.ok()) return account.status();
  account_ = *std::move(account);
  absl::StatusOr<std::unique_ptr<LineShares>> shares =
      LineShares::Open(fds[1].get(), fds[2].get(), start.slot());
  if (!shares.ok()) return shares.status();
  shares_ = *std::move(shares);
  return absl::OkStatus();
}

absl::Status EngineService::StartEngine(const v1::EngineStart& start, std::vector<UniqueFd> fds) {
  if (engine_ != nullptr) return absl::FailedPreconditionError("a second start");
  if (start.version() != kRingdVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("this is ringd-engine ", kRingdVersion, ", and ringd is ", start.version()));
  }
  const absl::StatusOr<Config> config = ReadSettings(start.settings());
  if (!config.ok()) return config.status();
  SetLogLevel(config->log_level);
  if (start.check_only()) {
    for (const std::string& wall : missing_walls_) LogWarning(wall);
  } else if (absl::Status status = OpenShares(start, fds); !status.ok()) {
    return status;
  }
  remote_ = std::make_unique<RemoteNetwork>(start.uid(), [this](v1::EngineNetworkRequest request) {
    v1::FromEngine word;
    *word.mutable_network() = std::move(request);
    Send(word);
  });
  std::unique_ptr<WireSockets> wires;
  if (!start.wire_address().empty()) {
    absl::StatusOr<std::unique_ptr<WireSockets>> opened =
        remote_->MakeWireSockets(DoorPurpose::kWire, start.wire_address());
    if (!opened.ok()) return opened.status();
    wires = *std::move(opened);
  }
  absl::StatusOr<std::unique_ptr<Transport>> transport =
      MakeTransport(*config, std::move(wires), shares_.get());
  v1::FromEngine started;
  WriteStatus(transport.status(), started.mutable_started()->mutable_status());
  if (transport.ok()) {
    started.mutable_started()->set_backend(
        *transport == nullptr ? "none" : std::string((*transport)->name()));
  }
  if (!transport.ok() || start.check_only()) {
    Send(started);
    End("");
    return absl::OkStatus();
  }
  std::unique_ptr<RankExchangeSockets> rank_exchange;
  if (!start.exchange_address().empty()) {
    absl::StatusOr<std::unique_ptr<WireSockets>> sockets =
        remote_->MakeWireSockets(DoorPurpose::kExchange, start.exchange_address());
    if (!sockets.ok()) return sockets.status();
    absl::StatusOr<std::unique_ptr<RankExchangeSockets>> opened =
        RankExchangeSockets::Create(*std::move(sockets));
    if (!opened.ok()) return opened.status();
    rank_exchange = *std::move(opened);
  }
  SocketPeerNetworkOptions peers;
  // The ringd of a stopped engine's node ends it first, and says so.
  peers.stream.process_patience = config->engine_patience + kEndOfStoppedEngine;
  absl::StatusOr<std::unique_ptr<SocketPeerNetwork>> network =
      SocketPeerNetwork::Create(remote_->control(), peers);
  if (!network.ok()) return network.status();
  network_ = *std::move(network);
  EngineOptions options = MakeOptions(start, *config);
  options.listener = this;
  absl::StatusOr<ParsedState> known = ParseState(start.kept_state());
  if (!known.ok()) return known.status();
  PlanKeeper* const keeper = this;
  options.plans = std::make_unique<PlanStore>(std::move(known->state), keeper);
  for (const v1::EngineUnmeasured& unmeasured : start.unmeasured()) {
    options.plans->NoteUnmeasured({unmeasured.names().begin(), unmeasured.names().end()},
                                  unmeasured.unix_seconds());
  }
  auto& account = *reinterpret_cast<UserAccountSegment*>(account_.data());
  options.user_registrations.emplace(account, start.slot(), &UserAccountSlot::registration_bytes);
  options.user_communicators.emplace(account, start.slot(), &UserAccountSlot::communicators);
  auto engine = std::make_unique<Engine>(std::move(options), *std::move(transport),
                                         std::move(rank_exchange), network_.get());
  engine->Start();
  engine_ = std::move(engine);
  // The engine has its thread: this one, which reads frames, gives way to it.
  ServeBesideEngine();
  Send(started);
  const MutexLock lock(mutex_);
  started_ = true;
  return absl::OkStatus();
}

absl::Status EngineService::Attach(const v1::EngineSession& session, std::vector<UniqueFd> fds) {
  if (fds.size() != kSessionFds + (session.has_pidfd() ? 1 : 0)) {
    return absl::InvalidArgumentError("a session without its descriptors");
  }
  auto resources = std::make_unique<SessionResources>();
  resources->id = SessionId(session.id());
  resources->token = session.token();
  resources->peer = {session.pid(), session.uid(), session.gid()};
  resources->lifeline = std::move(fds[0]);
  resources->event_fd = std::move(fds[1]);
  resources->segment_fd = std::move(fds[2]);
  resources->arena_fd = std::move(fds[3]);
  if (session.has_pidfd()) resources->pidfd = std::move(fds[4]);
  resources->layout = {session.submission_capacity(), session.completion_capacity()};
  resources->arena_bytes = session.arena_bytes();
  engine_->Attach(std::move(resources));
  return absl::OkStatus();
}

void EngineService::OnSessionEnded(SessionId id, bool for_cause) {
  v1::FromEngine word;
  word.mutable_session_ended()->set_id(id.value());
  word.mutable_session_ended()->set_for_cause(for_cause);
  Send(word);
}

void EngineService::OnJobs(std::uint32_t jobs) {
  v1::FromEngine word;
  word.mutable_jobs()->set_jobs(jobs);
  Send(word);
}

void EngineService::OnGeneration(std::uint32_t next) {
  v1::FromEngine word;
  word.mutable_generation()->set_next(next);
  Send(word);
}

void EngineService::OnJobEnded(const v1::Job& job) {
  v1::FromEngine word;
  *word.mutable_job_ended()->mutable_job() = job;
  Send(word);
}

void EngineService::Keep(KeptState changed) {
  v1::FromEngine word;
  word.mutable_keep()->set_state(FormatBounded(std::move(changed), kMostPassedBytes));
  Send(word);
}

void EngineService::KeepUnmeasured(const std::vector<std::string>& names,
                                   std::int64_t unix_seconds) {
  v1::FromEngine word;
  word.mutable_keep()->set_state(FormatState({}));
  for (const std::string& name : names) word.mutable_keep()->add_unmeasured(name);
  word.mutable_keep()->set_unix_seconds(unix_seconds);
  Send(word);
}

void EngineService::OnIdle(std::uint64_t sessions) {
  v1::FromEngine word;
  word.mutable_idle()->set_sessions(sessions);
  Send(word);
}

}  // namespace ringd
