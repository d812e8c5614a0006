// Joining: finding or opening the job, its coordinator, and the link between them.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/config/fusion_setting.h"
#include "daemon/config/host_port.h"
#include "daemon/engine/engine.h"
#include "daemon/logging/log.h"
#include "proto/door/secure_random.h"
#include "proto/types/job_weight.h"

namespace ringd {
namespace {

// Of one job. A bound on what a wrong or hostile size can cost, far above what is in use.
constexpr int kMaxRanks = 65'536;
// Job names whose incarnations are counted.
constexpr std::size_t kMaxGenerations = 10'000;
// A secret that nobody guesses who can try guesses on a proof at leisure.
constexpr std::size_t kLeastSecretBytes = 16;

absl::Status CheckPlaces(const v1::JoinRequest& request) {
  const auto wrong = [](const auto&... parts) {
    return absl::InvalidArgumentError(absl::StrCat(parts...));
  };
  if (request.job_id().empty() || request.job_id().size() > 256) {
    return wrong("a job id has 1 to 256 bytes, not ", request.job_id().size());
  }
  if (request.size() < 1 || request.size() > kMaxRanks) {
    return wrong("size ", request.size(), " is not one of 1 to ", kMaxRanks);
  }
  if (request.rank() < 0 || request.rank() >= request.size()) {
    return wrong("rank ", request.rank(), " is not one of 0 to ", request.size() - 1);
  }
  if (request.local_size() < 1 || request.local_size() > request.size()) {
    return wrong("local size ", request.local_size(), " is not one of 1 to ", request.size());
  }
  if (request.local_rank() < 0 || request.local_rank() >= request.local_size()) {
    return wrong("local rank ", request.local_rank(), " is not one of 0 to ",
                 request.local_size() - 1);
  }
  if (JobWeightOrDefault(request.weight()) > kMaxJobWeight) {
    return wrong("weight ", request.weight(), " is not one of ", kMinJobWeight, " to ",
                 kMaxJobWeight);
  }
  if (request.secret().size() > 4096) return wrong("a job secret has at most 4096 bytes");
  return absl::OkStatus();
}

std::chrono::nanoseconds OrDefault(std::uint32_t ms, std::chrono::nanoseconds fallback) {
  return ms > 0 ? std::chrono::milliseconds(ms) : fallback;
}

}  // namespace

void Engine::JoinNow(absl::string_view token, const v1::JoinRequest& request, JoinCallback done) {
  const Clock::time_point now = Clock::now();
  SessionEntry* entry = FindToken(token);
  absl::Status status = CheckPlaces(request);
  if (entry == nullptr) {
    status = UnknownToken();
  } else if (entry->job != nullptr) {
    status = absl::FailedPreconditionError("this session has joined a job already");
  } else if (draining_) {
    status = absl::FailedPreconditionError(
        absl::StrCat("ringd on ", options_.config.node_name, " is draining: it takes no new jobs"));
  }
  if (!status.ok()) {
    done(status, {});
    return;
  }
  const uid_t uid = entry->session->peer().uid;
  const auto open = std::find_if(jobs_.begin(), jobs_.end(), [&](const auto& job) {
    return job->Open() && job->options().uid == uid && job->options().job_id == request.job_id();
  });
  status = CheckWishes(request);
  if (status.ok()) status = CheckForOtherNodes(request);
  if (!status.ok()) {
    if (JobCoordinator* coordinator = FindCoordinator(request.job_id(), uid)) {
      coordinator->NoteTurnedAway(std::string(status.message()));
    }
    done(status, {});
    return;
  }
  Job* job = open != jobs_.end() ? open->get() : OpenJob(request, uid, now);
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
      NoteTurnedAway(job->options(), std::string(failed_at_once->message()));
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

absl::Status Engine::CheckWishes(const v1::JoinRequest& request) const {
  const std::string who =
      absl::StrCat("job '", request.job_id(), "': rank ", request.rank(), " asks for ");
  const std::uint32_t weight = JobWeightOrDefault(request.weight());
  if (weight > options_.config.max_weight) {
    return absl::InvalidArgumentError(absl::StrCat(
        who, "weight ", weight, " (RINGD_WEIGHT), but ringd on ", options_.config.node_name,
        " allows at most ", options_.config.max_weight, " (its setting max_weight)"));
  }
  if (request.fusion().empty()) return absl::OkStatus();
  const absl::Status fusion = ParseFusion(request.fusion()).status();
  if (fusion.ok()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(who, "fusion '", request.fusion().substr(0, 64),
                                                 "' (RINGD_FUSION); ", fusion.message()));
}

absl::Status Engine::CheckForOtherNodes(const v1::JoinRequest& request) const {
  if (request.size() == request.local_size()) return absl::OkStatus();
  std::vector<std::string> missing;
  const absl::StatusOr<HostPort> here = ParseHostPort(options_.peer_address);
  const absl::StatusOr<HostPort> rendezvous = ParseHostPort(request.rendezvous());
  if (here.ok() && IsLoopback(here->host) && rendezvous.ok() && !IsLoopback(rendezvous->host)) {
    missing.push_back(absl::StrCat(
        "ringd on ", options_.config.node_name, " serves ", here->host,
        " only, where no other node reaches it: set peer_interface (such as \"eth0\") or "
        "peer_address in its ringd.toml"));
  }
  if (options_.cluster_key.empty() && request.secret().size() < kLeastSecretBytes &&
      !options_.config.insecure_peers) {
    missing.push_back(absl::StrCat(
        "neither a cluster key (cluster_key_file in ringd.toml; `openssl rand -hex 32`) nor a job "
        "secret of ",
        kLeastSecretBytes,
        " characters or more (RINGD_JOB_SECRET) says who may take part; insecure_peers = true does "
        "without"));
  }
  if (missing.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("job '", request.job_id(),
                                                    "': this job spans several nodes, and ",
                                                    absl::StrJoin(missing, "; and ")));
}

Job* Engine::OpenJob(const v1::JoinRequest& request, uid_t uid, Clock::time_point now) {
  Job::Options options;
  options.job_id = request.job_id();
  options.uid = uid;
  options.size = request.size();
  options.local_size = request.local_size();
  options.rendezvous = request.rendezvous();
  options.secret = request.secret();
  options.key = JobKey(options_.cluster_key, request.job_id(), request.secret(), uid);
  options.has_cluster_key = !options_.cluster_key.empty();
  options.node_name = options_.config.node_name;
  options.transport_address = transport_ == nullptr ? "" : transport_->LocalAddress();
  options.daemon_version = options_.version;
  options.communicator = CommunicatorId(next_communicator_++);
  options.next_communicator = [this] { return CommunicatorId(next_communicator_++); };
  options.start_timeout = OrDefault(request.start_timeout_ms(), options_.config.start_timeout);
  options.stall_warning = options_.config.stall_warning;
  options.operation_timeout =
      OrDefault(request.operation_timeout_ms(), options_.config.operation_timeout);
  options.fusion = request.fusion();
  options.weight = JobWeightOrDefault(request.weight());
  options.rank_exchange = transport_ == nullptr ? nullptr : rank_exchange_.get();
  options.reducers = reducers_.thread_count() > 0 ? &reducers_ : nullptr;
  options.isolated = &isolated_;
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

void Engine::NoteTurnedAway(const Job::Options& job, const std::string& why) {
  if (JobCoordinator* coordinator = FindCoordinator(job.job_id, job.uid)) {
    coordinator->NoteTurnedAway(why);
  }
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
  if (generations_.size() > kMaxGenerations) generations_.clear();
  options.generation = generations_[options.job_id]++;
  options.start_timeout = job.start_timeout;
  options.algorithms = options_.algorithms;
  options.learn = options_.config.learn_schedule;
  options.fusion = ParseFusion(job.fusion.empty() ? options_.config.fusion : job.fusion)
                       .value_or(FusionPolicy());
  options.fusion_threshold_bytes = options_.config.fusion_threshold;
  options.asked_fusion = job.fusion;
  options.plans = &plans_;
  options.choose_flat_all_reduces = options_.config.flat_all_reduce_bytes == kAutoBytes;
  options.choose_small_all_reduces = options_.config.small_all_reduce_bytes == kAutoBytes;
  options.ring_order = options_.config.ring_order;
  options.measure_links = options_.config.measure_links && transport_ != nullptr;
  coordinators_.push_back(
      std::make_unique<JobCoordinator>(std::move(options), links_.get(), Clock::now()));
  return coordinators_.back().get();
}

}  // namespace ringd
