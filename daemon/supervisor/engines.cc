#include "daemon/supervisor/engines.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/channel/engine_settings.h"
#include "daemon/supervisor/engine_program.h"

namespace ringd {
namespace {

constexpr std::uint64_t kWakeKey = 0;
// Of what an engine tells about a job that has ended. The history keeps much less of it.
constexpr std::size_t kMostJobBytes = std::size_t{1} << 20;
constexpr std::uint32_t kMostCommunicatorNumbers = 400'000;

}  // namespace

absl::StatusOr<std::unique_ptr<Engines>> Engines::Start(EnginesOptions options,
                                                        NodeNetwork* network, PlanStore* plans,
                                                        IsolatedExecutor* isolated) {
  absl::StatusOr<WakingEpoll> epoll = WakingEpoll::Create(kWakeKey);
  if (!epoll.ok()) return epoll.status();
  std::unique_ptr<Engines> engines(
      new Engines(std::move(options), network, plans, isolated, *std::move(epoll)));
  absl::StatusOr<std::unique_ptr<EngineLogs>> logs = EngineLogs::Create();
  if (!logs.ok()) return logs.status();
  engines->logs_ = *std::move(logs);
  absl::StatusOr<std::unique_ptr<LineRoster>> roster = LineRoster::Create();
  if (!roster.ok()) return roster.status();
  engines->roster_ = *std::move(roster);
  absl::StatusOr<std::unique_ptr<ChannelLoop>> loop =
      ChannelLoop::Start("ringd-channels", isolated);
  if (!loop.ok()) return loop.status();
  engines->loop_ = *std::move(loop);
  engines->thread_ = std::thread(&Engines::Run, engines.get());
  ::pthread_setname_np(engines->thread_.native_handle(), "ringd-engines");
  return engines;
}

Engines::Engines(EnginesOptions options, NodeNetwork* network, PlanStore* plans,
                 IsolatedExecutor* isolated, WakingEpoll epoll)
    : network_(network),
      plans_(plans),
      isolated_(isolated),
      epoll_(std::move(epoll)),
      program_(options.program),
      keeps_(std::make_unique<KeepQueue>(plans)),
      options_(std::move(options)),
      history_(options_.config.remembered_jobs) {}

Engines::~Engines() {
  Stop();
  loop_.reset();
  keeps_.reset();
  calls_.Stop();
}

absl::StatusOr<Engines::Client> Engines::MakeLocked() {
  absl::StatusOr<Client> made =
      EngineClient::Create(++last_number_, {loop_.get(), &calls_, isolated_, this});
  if (!made.ok()) return made.status();
  unwatched_.push_back(*made);
  epoll_.Wake();
  return made;
}

std::string Engines::KeptState(uid_t uid) const { return FormatState(plans_->ForUser(uid)); }

absl::StatusOr<Engines::Client> Engines::BeginLocked(uid_t uid, const std::string& job_id,
                                                     std::uint32_t weight, std::string kept_state) {
  EngineClient::Place place;
  absl::StatusOr<std::unique_ptr<LineRoster::Slot>> slot = roster_->Add(weight, uid);
  if (!slot.ok()) return slot.status();
  place.slot = *std::move(slot);
  absl::StatusOr<std::shared_ptr<UserAccount>> account = accounts_.Of(uid);
  if (!account.ok()) return account.status();
  place.account = *std::move(account);
  Client engine;
  if (!ready_.empty()) {
    engine = std::move(ready_.front());
    ready_.erase(ready_.begin());
  } else {
    absl::StatusOr<Client> made = MakeLocked();
    if (!made.ok()) return made.status();
    engine = *std::move(made);
  }
  const std::weak_ptr<EngineClient> to = engine;
  place.network = network_->AddEngine(
      uid, job_id,
      [to](v1::EngineNetworkEvent event, std::vector<UniqueFd> fds, CountedPlaces::Place held) {
        if (const Client client = to.lock()) {
          client->SendNetworkEvent(std::move(event), std::move(fds), std::move(held));
        }
      });

  v1::EngineStart start;
  start.set_version(options_.version);
  WriteSettings(options_.config, start.mutable_settings());
  start.set_job_id(job_id);
  start.set_uid(uid);
  start.set_peer_address(options_.peer_address);
  for (const std::string& address : options_.own_addresses) start.add_own_addresses(address);
  start.set_wire_address(options_.wire_address);
  start.set_exchange_address(options_.exchange_address);
  start.set_has_cluster_key(options_.has_cluster_key);
  start.set_first_generation(generations_.Next(uid, job_id));
  start.set_first_communicator(next_communicator_);
  next_communicator_ = next_communicator_ % kMostCommunicatorNumbers + 1;
  start.set_kept_state(std::move(kept_state));
  for (const auto& [names, unix_seconds] : plans_->Unmeasured()) {
    v1::EngineUnmeasured* const unmeasured = start.add_unmeasured();
    for (const std::string& name : names) unmeasured->add_names(name);
    unmeasured->set_unix_seconds(unix_seconds);
  }
  if (absl::Status status =
          engine->Begin(std::move(start), std::move(place), options_.config.node_name);
      !status.ok()) {
    engine->End(std::string(status.message()));
    return status;
  }
  by_job_[{uid, job_id}] = engine;
  serving_[engine->number()] = engine;
  begun_at_ = Clock::now();
  return engine;
}

absl::StatusOr<Engines::Client> Engines::Give(std::unique_ptr<SessionResources>& session,
                                              const std::string& job_id, std::uint32_t weight) {
  const uid_t uid = session->peer.uid;
  for (;;) {
    bool begins = false;
    {
      const MutexLock lock(mutex_);
      if (absl::Status status = CheckTakesLocked(); !status.ok()) return status;
      begins = !by_job_.contains({uid, job_id});
      // What is refused costs nothing.
      if (begins) {
        if (absl::Status status = roster_->CheckRoom(uid); !status.ok()) return status;
      }
    }
    // Other calls need not wait for it.
    std::string kept_state = begins ? KeptState(uid) : "";
    const MutexLock lock(mutex_);
    if (absl::Status status = CheckTakesLocked(); !status.ok()) return status;
    Client engine;
    if (const auto found = by_job_.find({uid, job_id}); found != by_job_.end()) {
      engine = found->second;
      // A job that follows another one of its name may have another weight.
      if (engine->jobs() == 0) engine->SetWeight(weight);
    } else if (begins) {
      absl::StatusOr<Client> begun = BeginLocked(uid, job_id, weight, std::move(kept_state));
      if (!begun.ok()) return begun.status();
      engine = *std::move(begun);
    } else {
      continue;  // its engine has ended just now
    }
    return GiveLocked(std::move(engine), session);
  }
}

absl::Status Engines::CheckTakesLocked() const {
  if (stopping_) return absl::UnavailableError("ringd is stopping");
  if (draining_) return TakesNoNewJobs(options_.config.node_name);
  return absl::OkStatus();
}

absl::StatusOr<Engines::Client> Engines::GiveLocked(Client engine,
                                                    std::unique_ptr<SessionResources>& session) {
  const std::string token = session->token;
  tokens_[token] = engine;
  if (absl::Status status = engine->GiveSession(session); !status.ok()) {
    tokens_.erase(token);
    // It says that it is idle only after a session.
    if (engine->sessions_given() == 0) {
      by_job_.erase({engine->uid(), engine->job_id()});
      engine->Stop();
    }
    return status;
  }
  return engine;
}

Engines::Client Engines::Find(absl::string_view token) {
  const MutexLock lock(mutex_);
  const auto found = tokens_.find(std::string(token));
  return found == tokens_.end() ? nullptr : found->second;
}

std::vector<Engines::Client> Engines::Serving() {
  std::vector<Client> serving;
  const MutexLock lock(mutex_);
  for (const auto& [number, engine] : serving_) serving.push_back(engine);
  std::sort(serving.begin(), serving.end(), [](const Client& a, const Client& b) {
    return a->start().first_communicator() < b->start().first_communicator();
  });
  return serving;
}

void Engines::NoteTurnedAway(uid_t uid, const std::string& job_id, const std::string& why) {
  const MutexLock lock(mutex_);
  const auto found = by_job_.find({uid, job_id});
  if (found != by_job_.end()) found->second->TurnedAway(why);
}

bool Engines::IsEngine(pid_t pid, Clock::time_point since) {
  const MutexLock lock(mutex_);
  if (pids_.contains(pid)) return true;
  const auto ended = ended_pids_.find(pid);
  return ended != ended_pids_.end() && ended->second >= since;
}

std::size_t Engines::sessions() {
  const MutexLock lock(mutex_);
  return tokens_.size();
}

void Engines::Reload(const Config& config) {
  v1::EngineReload reload;
  const MutexLock lock(mutex_);
  const std::vector<std::string> before = arguments_.For(options_.config);
  if (arguments_.For(config) != before) {
    // Those that stand ready have been started as it was.
    for (const Client& engine : ready_) engine->Stop();
    ready_.clear();
    epoll_.Wake();
  }
  options_.config = config;
  history_.SetLimit(config.remembered_jobs);
  WriteSettings(config, reload.mutable_settings());
  for (const auto& [number, engine] : serving_) engine->Reload(reload);
}

void Engines::UseAddresses(const std::string& wire_address, const std::string& exchange_address) {
  const MutexLock lock(mutex_);
  options_.wire_address = wire_address;
  options_.exchange_address = exchange_address;
}

void Engines::SetDraining(bool draining) {
  const MutexLock lock(mutex_);
  draining_ = draining;
  network_->RefuseNewJobs(draining);
  for (const auto& [number, engine] : serving_) engine->SetDraining(draining);
  epoll_.Wake();
}

void Engines::Stop() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    for (const Client& engine : ready_) engine->Stop();
    ready_.clear();
    for (const auto& [number, engine] : serving_) engine->Stop();
    ended_ = true;
  }
  epoll_.Wake();
  thread_.join();
}

void Engines::ForEachEnded(const std::function<bool(const v1::Job&)>& take) {
  const MutexLock lock(mutex_);
  std::uint64_t before = UINT64_MAX;
  while (const JobHistory::Entry* entry = history_.Before(before)) {
    if (!take(entry->job)) return;
    before = entry->number;
  }
}

// ---- what engines say ----

void Engines::OnSessionEnded(EngineClient& engine, const std::string& token, bool for_cause) {
  if (for_cause) ended_for_cause_.fetch_add(1, std::memory_order_relaxed);
  const MutexLock lock(mutex_);
  const auto found = tokens_.find(token);
  if (found != tokens_.end() && found->second.get() == &engine) tokens_.erase(found);
}

void Engines::OnGeneration(EngineClient& engine, std::uint32_t next) {
  const MutexLock lock(mutex_);
  generations_.Note(engine.uid(), engine.job_id(), next);
}

void Engines::OnJobEnded(EngineClient& engine, const v1::EngineJobEnded& ended) {
  if (ended.ByteSizeLong() > kMostJobBytes) {
    return engine.End("tells more of a job than anybody keeps");
  }
  v1::Job job = ended.job();
  job.set_job_id(engine.job_id());
  job.set_uid(engine.uid());
  JobHistory::Cut(job);
  const MutexLock lock(mutex_);
  history_.Add(std::move(job));
}

void Engines::OnKeep(EngineClient& engine, v1::EngineKeep keep) {
  // Dropped if too much waits: nobody waits for it.
  keeps_->Add(engine.uid(), engine.number(), std::move(keep),
              [kept = engine.shared_from_this()](const absl::Status& why) {
                kept->End(std::string(why.message()));
              });
}

void Engines::OnIdle(EngineClient& engine, std::uint64_t sessions) {
  const MutexLock lock(mutex_);
  const auto found = by_job_.find({engine.uid(), engine.job_id()});
  if (found == by_job_.end() || found->second.get() != &engine) return;
  // One that is on its way to it keeps it.
  if (engine.sessions_given() != sessions || engine.sessions() != 0) return;
  by_job_.erase(found);
  engine.Stop();
}

void Engines::OnEnding(EngineClient& /*engine*/) { epoll_.Wake(); }

}  // namespace ringd
