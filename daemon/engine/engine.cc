#include "daemon/engine/engine.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/logging/log.h"

namespace ringd {
namespace {

LaunchChoice LaunchChoiceOf(const Config& config) {
  if (config.device_launch == "engine") return LaunchChoice::kEngine;
  if (config.device_launch == "host") return LaunchChoice::kHost;
  return config.device_launch == "trainer" ? LaunchChoice::kTrainer : LaunchChoice::kAuto;
}

// Stalls, deaths and deadlines are looked at this often while there is anything to look at.
constexpr auto kTickInterval = std::chrono::milliseconds(50);
// An idle engine still shows that it is alive.
constexpr auto kIdleInterval = std::chrono::milliseconds(1000);
// A busy one shows that this often to the ranks, whose memory that touches.
constexpr auto kBeatInterval = std::chrono::milliseconds(200);
// What calls of any size may take of one turn, in entries of about a microsecond: with and without
// other work.
constexpr std::size_t kSlicedEntries = 64;
constexpr std::size_t kSlicedEntriesWhileBusy = 16;
// While it spins, the engine looks at its descriptors this often.
constexpr auto kLookInterval = std::chrono::microseconds(500);

// Those that this process may run on; all that are online where there are too many to be told.
unsigned UsableProcessors() noexcept {
  cpu_set_t usable;
  if (::sched_getaffinity(0, sizeof(usable), &usable) != 0) {
    return std::thread::hardware_concurrency();
  }
  return static_cast<unsigned>(CPU_COUNT(&usable));
}

int ReducerThreads(const Config& config) {
  return config.reducer_threads == kAutoCount ? DefaultReducerThreads(UsableProcessors())
                                              : static_cast<int>(config.reducer_threads);
}

}  // namespace

Engine::Engine(EngineOptions options, std::unique_ptr<Transport> transport,
               std::unique_ptr<RankExchangeSockets> rank_exchange, PeerNetwork* network)
    : options_(std::move(options)),
      transport_(std::move(transport)),
      rank_exchange_(std::move(rank_exchange)),
      network_(network),
      devices_({.cuda_library = options_.config.cuda_library,
                .nccl_library = options_.config.nccl_library,
                .fusion_bytes = options_.config.fusion_threshold,
                .max_slab = options_.config.max_slab,
                .launch = LaunchChoiceOf(options_.config),
                .nccl_interfaces = absl::StrJoin(options_.config.data_interfaces, ","),
                .keep = options_.config.keep_communicators},
               [this] { commands_.Post([] {}); }),
      reducers_(transport_ == nullptr ? 0 : ReducerThreads(options_.config)),
      start_timeout_ns_(options_.config.start_timeout.count()),
      accounts_(options_.config.registration_bytes_per_user, options_.user_registrations),
      sliced_(
          [this](std::shared_ptr<SlicedWork> work) { calls_.Post([work = std::move(work)] {}); }),
      plans_(options_.plans == nullptr ? std::make_unique<PlanStore>() : std::move(options_.plans)),
      links_(std::make_unique<LinkSwitch>(network)),
      next_generation_(options_.first_generation),
      spin_(options_.config.spin) {
  events_.Add(commands_.event_fd(), EventKind::kCommands);
  if (transport_ != nullptr) events_.Add(transport_->event_fd(), EventKind::kTransport);
  events_.Add(reducers_.event_fd(), EventKind::kReducers);
  if (rank_exchange_ != nullptr) events_.Add(rank_exchange_->event_fd(), EventKind::kRankExchange);
  network_->SetEvents(this);
}

Engine::~Engine() {
  Stop();
  jobs_.clear();  // their communicators go before the transport
  // Nothing posts calls' work any more, and what waits on the call thread may look at us.
  calls_.Stop();
  isolated_.Stop();  // its tasks may look at us, too
}

void Engine::Start() {
  if (const int count = reducers_.thread_count(); count > 0) {
    LogInfo(absl::StrCat(count, count == 1 ? " reducer thread sums" : " reducer threads sum",
                         " the tensors of this node's ranks"));
  }
  running_ = true;
  thread_ = std::thread([this] {
    ::pthread_setname_np(::pthread_self(), "ringd-progress");
    Run();
  });
}

void Engine::Stop(absl::string_view how) {
  if (!thread_.joinable()) return;
  how_stopped_ = std::string(how);
  commands_.Post([this] { EndAll(); });
  thread_.join();
  // Calls and sessions that came just before: they wait for an answer, or their end.
  commands_.RunAll();
  sliced_.AbandonAll(absl::UnavailableError("ringd is stopping"));
  EndAllSessions();
}

void Engine::EndAll() {
  stopping_ = true;
  running_ = false;  // Calls are refused from now on: nobody would answer them.
  sliced_.AbandonAll(absl::UnavailableError("ringd is stopping"));
  const absl::Status cause = WhyStopped();
  // The others need nothing of a node whose ranks have left.
  for (const auto& job : jobs_) {
    if (!job->AllHaveLeft()) job->Fail(cause);
  }
  for (const auto& coordinator : coordinators_) coordinator->Fail(cause);
  for (const auto& job : jobs_) job->Settle();
  links_->Deliver(Clock::now());
  EndAllSessions();
}

void Engine::Reload(const Config& config) {
  start_timeout_ns_.store(config.start_timeout.count(), std::memory_order_relaxed);
  accounts_.SetLimit(config.registration_bytes_per_user);
  commands_.Post([this, config] { options_.config = config; });
}

void Engine::SetDraining(bool draining) {
  commands_.Post([this, draining] {
    draining_ = draining;
    if (!draining) return;
    if (jobs_.empty()) devices_.DropKept();  // none comes
    // Their missing ranks will be refused, so there is nothing to wait for.
    for (const auto& job : jobs_) {
      if (job->state() != Job::State::kJoining) continue;
      job->Fail(absl::FailedPreconditionError(
          absl::StrCat("ringd on ", options_.config.node_name, " is draining: job '",
                       job->options().job_id, "' can't start any more")));
    }
  });
}

void Engine::Run() {
  Clock::time_point last_look;
  due_ = Clock::now();
  while (!stopping_) {
    Clock::time_point now = Clock::now();
    standstill_.OnTurn(due_, now);
    due_ = now;
    heartbeat_.fetch_add(1, std::memory_order_relaxed);
    if (now >= next_beat_) ShowHeartbeat(now);
    if (now - last_look >= kLookInterval) {
      HandleEvents(std::chrono::milliseconds(0));
      last_look = now;
    }
    if (Turn(now) > 0) {
      spin_.OnWork(Clock::now());
    } else if (spin_.LooksOn(now)) {
      // Whoever we wait for may want this processor.
      ::sched_yield();
    } else {
      Sleep(now);
      last_look = Clock::time_point();
    }
  }
}

void Engine::ShowHeartbeat(Clock::time_point now) {
  next_beat_ = now + kBeatInterval;
  for (auto& [id, entry] : sessions_) entry.session->ShowHeartbeat(heartbeat());
}

std::size_t Engine::Turn(Clock::time_point now) {
  activity_.Set(EngineDoing::kCommands);
  std::size_t work = commands_.RunAll() ? 1 : 0;
  if (stopping_) return work;
  activity_.Set(EngineDoing::kSubmissions);
  work += PollSessions(now);
  // Also without jobs: messages for one that is being formed, and connections that end, make it
  // wake us.
  activity_.Set(EngineDoing::kTransport);
  if (transport_ != nullptr) work += transport_->Progress();
  work += devices_.Advance();
  activity_.Set(EngineDoing::kRankExchange);
  if (std::exchange(rank_exchange_stirred_, false)) rank_exchange_->Advance();
  for (const auto& job : jobs_) {
    activity_.Set(EngineDoing::kJob, job->options().communicator.value());
    work += job->Advance(now);
  }
  activity_.Set(EngineDoing::kCoordinating);
  for (const auto& coordinator : coordinators_) {
    coordinator->Advance(now, standstill_.Judges(now));
  }
  activity_.Set(EngineDoing::kMessages);
  if (links_->Deliver(now)) ++work;
  StopExpecting();
  activity_.Set(EngineDoing::kCompletions);
  for (auto& [id, entry] : sessions_) entry.session->FlushCompletions();
  work += RunSliced(work, now);
  // With nothing else to do, what reducers have not come to.
  if (work == 0) {
    for (const auto& job : jobs_) work += job->CopyPiece() ? 1 : 0;
  }
  if (now >= next_tick_) TickAll(now);
  TellIfIdle();
  return work;
}

std::size_t Engine::RunSliced(std::size_t other_work, Clock::time_point now) {
  const std::size_t entries =
      sliced_.Run(other_work > 0 ? kSlicedEntriesWhileBusy : kSlicedEntries, now);
  sliced_entries_.fetch_add(entries, std::memory_order_relaxed);
  if (entries > most_sliced_entries()) {
    most_sliced_entries_.store(entries, std::memory_order_relaxed);
  }
  return entries;
}

bool Engine::AnythingToDo() const {
  if (!commands_.empty() || !links_->empty()) return true;
  if (const auto next = sliced_.NextRun(); next.has_value() && *next <= Clock::now()) return true;
  return std::any_of(sessions_.begin(), sessions_.end(),
                     [](const auto& entry) { return entry.second.session->HasWork(); });
}

void Engine::Sleep(Clock::time_point now) {
  Clock::time_point until = now + kIdleInterval;
  for (const auto& job : jobs_) {
    if (job->NeedsTicks() || job->Finished()) until = std::min(until, next_tick_);
    if (const auto tick = job->NextTick(now); tick.has_value()) {
      until = std::min(until, std::max(*tick, now + std::chrono::milliseconds(1)));
    }
  }
  if (!links_->strangers().empty()) until = std::min(until, next_tick_);
  if (const auto next = sliced_.NextRun(); next.has_value()) until = std::min(until, *next);
  for (const auto& coordinator : coordinators_) {
    if (coordinator->NeedsTicks() || coordinator->Finished()) until = std::min(until, next_tick_);
  }
  for (auto& [id, entry] : sessions_) {
    if (entry.session->NoticesWait()) until = std::min(until, next_tick_);
    entry.session->SetEngineSleeps(true);
  }
  // Pairs with the fence in the client's submission: our word before, the look at the rings after.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  due_ = until;
  if (!AnythingToDo() && (transport_ == nullptr || transport_->Arm())) {
    activity_.Set(EngineDoing::kSleeping);
    HandleEvents(std::max(std::chrono::milliseconds(1),
                          std::chrono::ceil<std::chrono::milliseconds>(until - now)));
  }
  for (auto& [id, entry] : sessions_) entry.session->SetEngineSleeps(false);
}

void Engine::HandleEvents(std::chrono::milliseconds timeout) {
  const std::vector<EngineEvent>& events = events_.Wait(timeout);
  activity_.Set(EngineDoing::kEvents);
  for (const EngineEvent& event : events) {
    const auto found = sessions_.find(event.session);
    switch (event.kind) {
      case EventKind::kCommands:
      case EventKind::kTransport:
        break;  // Turn() looks at both.
      case EventKind::kReducers:
        reducers_.DrainEventFd();  // Turn() asks again for what was not ready.
        break;
      case EventKind::kRankExchange:
        rank_exchange_stirred_ = true;
        break;
      case EventKind::kDoorbell:
        if (found != sessions_.end()) found->second.session->DrainEventFd();
        break;
      case EventKind::kHangUp:
        EndSession(event.session, "closed its connection to ringd without leaving the job", false);
        break;
      case EventKind::kProcessEnd:
        EndSession(event.session, "has ended without leaving the job", false);
        break;
    }
  }
}

void Engine::TickAll(Clock::time_point now) {
  next_tick_ = now + kTickInterval;
  FlushNotices(now);
  if (standstill_.Judges(now)) {
    for (const auto& job : jobs_) {
      activity_.Set(EngineDoing::kTick, job->options().communicator.value());
      job->Tick(now);
    }
    LookAtDevices(now);
    DropOldStrangers(now);
  }
  GiveTraceTurns();
  links_->Deliver(now);  // What a job that is about to be swept has said last.
  Sweep(now);
  PublishCommunicators();
}

void Engine::Sweep(Clock::time_point now) {
  StopExpecting();  // of jobs that go
  const std::size_t jobs_before = jobs_.size();
  for (auto it = jobs_.begin(); it != jobs_.end();) {
    if (!(*it)->Finished()) {
      ++it;
      continue;
    }
    LogInfo("job ended", (*it)->Fields());
    TellJobEnded(**it, now);
    links_->Forget(it->get());
    it = jobs_.erase(it);
  }
  if (jobs_.size() != jobs_before) TellJobs();
  for (auto it = coordinators_.begin(); it != coordinators_.end();) {
    if (!(*it)->Finished()) {
      ++it;
      continue;
    }
    links_->Forget(it->get());
    it = coordinators_.erase(it);
  }
}

void Engine::TellJobs() const {
  if (options_.listener == nullptr) return;
  options_.listener->OnJobs(static_cast<std::uint32_t>(jobs_.size()));
}

void Engine::TellJobEnded(const Job& job, Clock::time_point now) {
  if (options_.listener == nullptr) return;
  v1::Job ended;
  job.Describe(&ended, now);
  if (job.state() != Job::State::kFailed) ended.set_state("done");
  ended.set_ended_unix_seconds(ended.started_unix_seconds() + ended.age_seconds());
  options_.listener->OnJobEnded(ended);
}

void Engine::TellIfIdle() {
  if (idle_told_ || !sessions_.empty() || !jobs_.empty() || !coordinators_.empty()) return;
  // Ranks of this node may have left a job that goes on.
  if (transport_ != nullptr && transport_->Lingers()) return;
  if (devices_.Lingers(Clock::now())) return;
  idle_told_ = true;
  if (options_.listener != nullptr) options_.listener->OnIdle(sessions_given_);
}

}  // namespace ringd
