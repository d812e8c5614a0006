// The thread that starts, watches, ends and reaps engines.
#include <signal.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "daemon/logging/log.h"
#include "daemon/supervisor/engine_program.h"
#include "daemon/supervisor/engines.h"
#include "proto/base/proc_stat.h"

namespace ringd {
namespace {

// How often engines are looked at that nothing has happened to.
constexpr int kLookMs = 200;
// How long an engine may take to end: it tells ranks and other nodes, 2 s each.
constexpr auto kStopPatience = std::chrono::seconds(6);
constexpr auto kCutPatience = std::chrono::seconds(1);
// Until another one is started to stand ready: a program that starts takes the processors from
// those who join.
constexpr auto kRefillDelay = std::chrono::milliseconds(50);
// After an engine could not be started, or has ended without having served.
constexpr auto kFirstPause = std::chrono::seconds(1);
constexpr auto kLongestPause = std::chrono::seconds(30);

// How long an engine may be without sessions and without other nodes' connections, beside the time
// for which it keeps communicators. One whose ranks have left a job that goes on elsewhere stays
// until that has taken its farewells.
constexpr auto kUnusedPatience = std::chrono::hours(1);
// Half of TasksMax in ringd.service: all engines and ringd share it.
constexpr std::size_t kMostThreadsOfUser = 4096;
constexpr auto kCountInterval = std::chrono::seconds(2);

// Of those that have ended: no connection waits that long to be accepted.
constexpr auto kPidMemory = std::chrono::minutes(10);

// 0: the kernel does not say.
std::size_t ThreadsOf(pid_t pid) {
  const std::vector<std::string> stat = ReadProcStat(pid);
  std::size_t threads = 0;
  const bool says =
      stat.size() > kProcStatThreads && absl::SimpleAtoi(stat[kProcStatThreads], &threads);
  return says ? threads : 0;
}

}  // namespace

void Engines::Run() {
  std::array<epoll_event, 64> events;
  for (;;) {
    ::epoll_wait(epoll_.fd(), events.data(), static_cast<int>(events.size()), kLookMs);
    epoll_.TakeWake();
    heartbeat_.fetch_add(1, std::memory_order_relaxed);
    isolated_->RelieveHeldUp();
    Refill();
    const Clock::time_point now = Clock::now();
    for (auto it = watched_.begin(); it != watched_.end();) {
      Look(it->second, now);
      if (Settle(it->second, now)) {
        it = watched_.erase(it);
      } else {
        ++it;
      }
    }
    ReapStuck();
    if (!watched_.empty()) continue;
    const MutexLock lock(mutex_);
    if (ended_ && unwatched_.empty()) return;
  }
}

void Engines::Refill() {
  std::vector<Client> made;
  std::vector<std::string> arguments;
  {
    const MutexLock lock(mutex_);
    arguments = arguments_.For(options_.config);
    const Clock::time_point at = std::max(refill_at_, begun_at_ + kRefillDelay);
    while (!stopping_ && !draining_ && ready_.size() < kReady && Clock::now() >= at) {
      absl::StatusOr<Client> another = MakeLocked();
      if (!another.ok()) {
        LogError(another.status().message());
        refill_at_ = Clock::now() + kFirstPause;
        break;
      }
      ready_.push_back(*std::move(another));
    }
    std::swap(made, unwatched_);
  }
  for (Client& engine : made) {
    Watched& watched = watched_[engine->number()];
    watched.engine = std::move(engine);
    EngineClient& client = *watched.engine;
    if (absl::Status status = client.Spawn(*program_, arguments); !status.ok()) {
      client.End(std::string(status.message()));
      continue;
    }
    watched.spawned = true;
    watched.log = logs_->Add(client.pid(), client.process()->TakeLog());
    epoll_.Watch(client.process()->pidfd(), EPOLLIN, client.number());
    const MutexLock lock(mutex_);
    pids_.insert(client.pid());
  }
}

void Engines::Look(Watched& watched, Clock::time_point now) {
  EngineClient& engine = *watched.engine;
  if (!watched.spawned) return;
  // One that stands ready is nobody's.
  if (engine.begun() && !std::exchange(watched.log_has_user, true)) {
    logs_->BelongsTo(watched.log, engine.uid(), engine.job_id());
  }
  EngineProcess& process = *engine.process();
  if (process.Reap()) return;
  if (!engine.why_ended().empty() || now >= watched.kill_at) {
    if (engine.why_ended().empty() && !engine.stopping()) {
      engine.End("has closed its channel to ringd");
    }
    process.End();
  } else if (watched.kill_at != Clock::time_point::max()) {
    return;
  } else if (engine.stopping()) {
    watched.kill_at = now + kStopPatience;
  } else if (engine.channel_ended()) {
    watched.kill_at = now + kCutPatience;
  } else {
    LookAtLife(watched, now);
  }
}

void Engines::LookAtLife(Watched& watched, Clock::time_point now) {
  EngineClient& engine = *watched.engine;
  // One that stands ready says nothing.
  if (!engine.begun()) return;
  const EngineClient::Life life = engine.life();
  EngineWatchdog::Sight sight{.heartbeat = life.heartbeat,
                              .activity = life.activity,
                              .heard = life.heard,
                              .is_unread = life.is_unread};
  if (now - life.heard >= EngineWatchdog::kSilence) {
    sight.is_stopped = IsStopped(engine.pid());
    sight.is_runnable = IsRunnable(engine.pid());
  }
  if (const auto word = watched.watchdog.Look(engine.Name(), sight, now)) {
    LogWarning(word->text, {.communicator = word->communicator});
  }
  Clock::duration patience{};
  {
    const MutexLock lock(mutex_);
    patience = options_.config.engine_patience;
  }
  LookForUse(watched, now);
  CountThreads(watched, now);
  if (watched.watchdog.still() < patience) return;
  engine.End(absl::StrCat(watched.watchdog.DescribeStill(sight, now),
                          ", and was ended (engine_patience)"));
}

void Engines::LookForUse(Watched& watched, Clock::time_point now) {
  EngineClient& engine = *watched.engine;
  if (engine.IsUsed()) {
    watched.unused_since.reset();
    return;
  }
  if (!watched.unused_since.has_value()) watched.unused_since = now;
  const Clock::duration unused = now - *watched.unused_since;
  {
    const MutexLock lock(mutex_);
    if (unused < kUnusedPatience + options_.config.keep_communicators) return;
    watched.unused_since.reset();
    const auto found = by_job_.find({engine.uid(), engine.job_id()});
    if (found == by_job_.end() || found->second != watched.engine || engine.IsUsed()) return;
    by_job_.erase(found);
    engine.Stop();
  }
  LogWarning(absl::StrCat(engine.Name(), " has no ranks and has not said that it is idle for ",
                          std::chrono::round<std::chrono::seconds>(unused).count(),
                          " s: it is ended"));
}

void Engines::CountThreads(Watched& watched, Clock::time_point now) {
  if (now < watched.next_count) return;
  watched.next_count = now + kCountInterval;
  watched.threads = ThreadsOf(watched.engine->pid());
  std::size_t of_user = 0;
  std::size_t most = 0;
  for (const auto& [number, other] : watched_) {
    if (!other.engine->begun() || other.engine->uid() != watched.engine->uid()) continue;
    // What is ending has no more of them soon.
    if (other.engine->stopping() || !other.engine->why_ended().empty()) continue;
    of_user += other.threads;
    most = std::max(most, other.threads);
  }
  // These do not end, so whoever has more of them goes for it.
  for (const Stuck& stuck : stuck_) {
    if (stuck.engine->uid() == watched.engine->uid()) of_user += stuck.threads;
  }
  if (of_user <= kMostThreadsOfUser || watched.threads < most) return;
  watched.engine->End(absl::StrCat("has ", watched.threads,
                                   " threads, and its user's engines have ", of_user,
                                   ", more than ", kMostThreadsOfUser));
}

void Engines::ReapStuck() {
  std::erase_if(stuck_, [this](Stuck& stuck) {
    if (!stuck.engine->process()->Reap()) return false;
    const MutexLock lock(mutex_);
    ForgetPidLocked(stuck.engine->pid());
    GiveBack(std::move(stuck.place));
    return true;
  });
}

void Engines::GiveBack(EngineClient::Place place) {
  if (place.account != nullptr) place.account->Clear(place.slot->number());
}

bool Engines::Settle(Watched& watched, Clock::time_point now) {
  EngineClient& engine = *watched.engine;
  if (!watched.spawned) {
    Bury(watched, engine.why_ended());
    return true;
  }
  const bool has_ended = engine.process()->Reap();
  if (!has_ended && !engine.process()->IsStuck(now)) return false;
  // It stays readable for as long as somebody holds the client.
  epoll_.Unwatch(engine.process()->pidfd());
  if (!engine.channel_ended()) {
    if (watched.cut_at == Clock::time_point::max()) {
      watched.cut_at = has_ended ? now + kCutPatience : now;
    }
    if (now >= watched.cut_at) engine.CutChannel();
    return false;
  }
  const std::string why = engine.why_ended();
  const std::string last_line = logs_->Finish(watched.log);
  if (!has_ended) {
    engine.End("was killed");  // not as it was told to end
    Bury(watched, absl::StrCat(engine.why_ended(), "; the kernel does not let go of it"));
    return true;
  }
  const EngineEnd& end = *engine.process()->end();
  std::string how = why.empty() ? DescribeEngineEnd(end) : why;
  // Who kills it says so elsewhere, and it has had no time to print why.
  if (why.empty() && !last_line.empty() && end.exit.signal != SIGKILL)
    absl::StrAppend(&how, "; its last words: ", last_line);
  Bury(watched, how);
  return true;
}

bool Engines::TakeLeave(const Client& engine) {
  const MutexLock lock(mutex_);
  // Give begins engines, and gives them sessions, under this lock: neither happens to it any more.
  std::erase(ready_, engine);
  if (!engine->begun()) return false;
  const Key key{engine->uid(), engine->job_id()};
  if (const auto found = by_job_.find(key); found != by_job_.end() && found->second == engine) {
    by_job_.erase(found);
  }
  return true;
}

void Engines::ForgetPidLocked(pid_t pid) {
  if (pids_.erase(pid) == 0) return;
  const Clock::time_point now = Clock::now();
  std::erase_if(ended_pids_, [now](const auto& entry) { return entry.second < now - kPidMemory; });
  ended_pids_[pid] = now;
}

void Engines::Bury(Watched& watched, const std::string& how) {
  EngineClient& engine = *watched.engine;
  const bool expected = engine.stopping() && engine.why_ended().empty();
  const bool served = TakeLeave(watched.engine);
  const std::uint32_t jobs = engine.jobs();
  const absl::Status cause =
      expected ? absl::UnavailableError("the job's engine has ended")
               : absl::AbortedError(served ? absl::StrCat(engine.Name(), " ", how)
                                           : absl::StrCat("an engine that stood ready ", how));
  if (!expected) LogError(cause.message());
  EngineClient::Remains remains = engine.Bury(cause);
  // Nobody waits for the door while we have the lock.
  remains.place.network.reset();
  const MutexLock lock(mutex_);
  if (engine.process() == nullptr || engine.process()->end().has_value()) {
    GiveBack(std::move(remains.place));
    ForgetPidLocked(engine.pid());
  } else {
    stuck_.push_back({watched.engine, std::move(remains.place), ThreadsOf(engine.pid())});
  }
  for (const std::string& token : remains.tokens) tokens_.erase(token);
  serving_.erase(engine.number());
  if (served) {
    refill_pause_ = Clock::duration{0};
  } else if (!expected) {
    refill_pause_ = std::clamp<Clock::duration>(refill_pause_ * 2, kFirstPause, kLongestPause);
    refill_at_ = Clock::now() + refill_pause_;
  }
  if (expected || !served || jobs == 0) return;
  v1::Job job;
  job.set_job_id(engine.job_id());
  job.set_uid(engine.uid());
  job.set_state("failed");
  job.set_failure(std::string(cause.message()));
  job.set_started_unix_seconds(engine.began_unix_seconds());
  job.set_ended_unix_seconds(
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count());
  job.set_age_seconds(job.ended_unix_seconds() - job.started_unix_seconds());
  JobHistory::Cut(job);
  history_.Add(std::move(job));
}

}  // namespace ringd
