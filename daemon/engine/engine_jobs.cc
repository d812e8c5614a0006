// Joining: finding or opening the job, its coordinator, and the link between them.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/config/fusion_setting.h"
#include "daemon/engine/engine.h"
#include "daemon/logging/log.h"
#include "proto/door/secure_random.h"
#include "proto/types/job_weight.h"

namespace ringd {
namespace {

// How far the first numbers of engines' communicators lie apart in those that follow: they are
// for people, and only one engine's must differ.
constexpr std::uint32_t kCommunicatorStride = 10'000;
std::chrono::nanoseconds OrDefault(std::uint32_t ms, std::chrono::nanoseconds fallback) {
  return ms > 0 ? std::chrono::milliseconds(ms) : fallback;
}

}  // namespace

void Engine::JoinNow(absl::string_view token, const v1::JoinRequest& request,
                     const DoorKey& job_key, JoinCallback done) {
  const Clock::time_point now = Clock::now();
  SessionEntry* entry = FindToken(token);
  if (entry == nullptr) return done(UnknownToken(), {});
  if (entry->job != nullptr) {
    return done(absl::FailedPreconditionError("this session has joined a job already"), {});
  }
  // Its session came before the drain, this after it: nobody else comes for the job.
  if (draining_) return done(TakesNoNewJobs(options_.config.node_name), {});
  const uid_t uid = entry->session->peer().uid;
  const auto is_asked_for = [&](const auto& job) {
    return job->options().uid == uid && job->options().job_id == request.job_id();
  };
  const auto open = std::find_if(jobs_.begin(), jobs_.end(),
                                 [&](const auto& job) { return job->Open() && is_asked_for(job); });
  if (open == jobs_.end()) {
    // Whoever comes again at once must not be gathered with those that have died.
    for (const auto& job : jobs_) {
      if (is_asked_for(job)) job->GiveWay(Rank(request.rank()), now);
    }
  }
  Job* job = open != jobs_.end() ? open->get() : OpenJob(request, job_key, uid, now);
  // The answer may come long after this function has returned.
  auto failed_at_once = std::make_shared<absl::Status>();
  job->Join(entry->session, request,
            [failed_at_once, done](const absl::Status& outcome, const v1::JoinReply& reply) {
              *failed_at_once = outcome;
              done(outcome, reply);
            });
  if (!failed_at_once->ok()) {
    LogWarning(absl::StrCat("a rank could not join: ", failed_at_once->message()),
               job->Fields(Rank(request.rank())));
    if (absl::IsUnauthenticated(*failed_at_once)) {
      TellTurnedAway(job->options(), std::string(failed_at_once->message()));
    }
    return;
  }
  // From here on `job` is told when this session goes.
  entry->job = job;
  entry->book->SetPlace({request.size(), request.local_size()});
  LogInfo(absl::StrCat("pid ", entry->session->peer().pid, " joins"),
          job->Fields(Rank(request.rank())));
  // The coordinator knows this node's ranks before others may disagree with them.
  links_->Deliver(now);
}

CommunicatorId Engine::NextCommunicator() {
  for (;;) {
    // After 2^32 of them all over again.
    const std::uint32_t made = communicators_made_++;
    const CommunicatorId id(made == 0 ? options_.first_communicator
                                      : options_.first_communicator * kCommunicatorStride + made);
    const bool taken = std::any_of(jobs_.begin(), jobs_.end(),
                                   [id](const auto& job) { return job->HasCommunicator(id); });
    if (!taken) return id;
  }
}

Job* Engine::OpenJob(const v1::JoinRequest& request, const DoorKey& key, uid_t uid,
                     Clock::time_point now) {
  Job::Options options;
  options.job_id = request.job_id();
  options.uid = uid;
  options.size = request.size();
  options.local_size = request.local_size();
  options.rendezvous = request.rendezvous();
  options.secret = request.secret();
  options.key = key;
  options.has_cluster_key = options_.has_cluster_key;
  options.node_name = options_.config.node_name;
  options.transport_address = transport_ == nullptr ? "" : transport_->LocalAddress();
  options.daemon_version = options_.version;
  options.number = ++jobs_opened_;
  options.communicator = NextCommunicator();
  options.next_communicator = [this] { return NextCommunicator(); };
  options.start_timeout = OrDefault(request.start_timeout_ms(), options_.config.start_timeout);
  options.stall_warning = options_.config.stall_warning;
  options.operation_timeout =
      OrDefault(request.operation_timeout_ms(), options_.config.operation_timeout);
  options.fusion = request.fusion();
  options.weight = JobWeightOrDefault(request.weight());
  options.rank_exchange = transport_ == nullptr ? nullptr : rank_exchange_.get();
  options.reducers = reducers_.thread_count() > 0 ? &reducers_ : nullptr;
  options.isolated = &isolated_;
  options.devices = &devices_;
  options.coordinates_here = request.size() == request.local_size() || options.rendezvous.empty() ||
                             options_.own_addresses.contains(options.rendezvous);
  JobCoordinator* coordinator = nullptr;
  if (options.coordinates_here) {
    // What has failed a former incarnation may still be on its way to its coordinator.
    links_->Deliver(now);
    coordinator = OpenCoordinator(options);
    options.generation = coordinator->generation();
  }
  jobs_.push_back(std::make_unique<Job>(options, transport_.get(), now));
  TellJobs();
  Job* job = jobs_.back().get();
  if (coordinator != nullptr) {
    Coordinate(job, coordinator);
  } else {
    job->UseLink(links_->LinkOutside(job,
                                     {options.rendezvous, options.job_id, uid,
                                      KeyForControl(options.key), !options.secret.empty()},
                                     now + options.start_timeout));
  }
  return job;
}

void Engine::Coordinate(Job* job, JobCoordinator* coordinator) {
  job->UseLink(links_->LinkInside(job, coordinator));
  const Job::Options& options = job->options();
  expected_.emplace(network_->Expect({options.job_id, options.uid, KeyForControl(options.key),
                                      !options.secret.empty(), options.size == options.local_size}),
                    job);
}

JobCoordinator* Engine::FindCoordinator(const std::string& job_id, uid_t uid) const {
  for (const auto& coordinator : coordinators_) {
    if (coordinator->Open() && coordinator->job_id() == job_id && coordinator->uid() == uid) {
      return coordinator.get();
    }
  }
  return nullptr;
}

void Engine::TellTurnedAway(const Job::Options& job, const std::string& why) {
  if (JobCoordinator* coordinator = FindCoordinator(job.job_id, job.uid)) {
    coordinator->NoteTurnedAway(why);
  }
}

void Engine::NoteTurnedAway(std::string why) {
  commands_.Post([this, why = std::move(why)] {
    for (const auto& coordinator : coordinators_) {
      if (coordinator->Open()) return coordinator->NoteTurnedAway(why);
    }
  });
}

JobCoordinator* Engine::OpenCoordinator(const Job::Options& job) {
  JobCoordinator::Options options;
  options.job_id = job.job_id;
  options.uid = job.uid;
  if (JobCoordinator* open = FindCoordinator(options.job_id, options.uid)) return open;
  options.size = job.size;
  options.weight = job.weight;
  options.communicator = job.communicator;
  const std::string random = RandomBytes(sizeof(options.wire_id));
  std::copy_n(random.data(), sizeof(options.wire_id), reinterpret_cast<char*>(&options.wire_id));
  options.generation = next_generation_++;
  if (options_.listener != nullptr) options_.listener->OnGeneration(next_generation_);
  options.start_timeout = job.start_timeout;
  options.algorithms = options_.algorithms;
  options.learn = options_.config.learn_schedule;
  options.fusion = ParseFusion(job.fusion.empty() ? options_.config.fusion : job.fusion)
                       .value_or(FusionPolicy());
  options.fusion_threshold_bytes = options_.config.fusion_threshold;
  options.asked_fusion = job.fusion;
  options.plans = plans_.get();
  options.choose_flat_all_reduces = options_.config.flat_all_reduce_bytes == kAutoBytes;
  options.choose_small_all_reduces = options_.config.small_all_reduce_bytes == kAutoBytes;
  options.ring_order = options_.config.ring_order;
  options.measure_links = options_.config.measure_links && transport_ != nullptr;
  coordinators_.push_back(
      std::make_unique<JobCoordinator>(std::move(options), links_.get(), Clock::now()));
  return coordinators_.back().get();
}

}  // namespace ringd
