// Joining: finding or opening the job, its coordinator, and the link between them.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/engine/engine.h"
#include "daemon/jobs/protocol_version.h"
#include "daemon/logging/log.h"
#include "daemon/peers/job_proof.h"
#include "daemon/peers/secure_random.h"

namespace ringd {
namespace {

constexpr auto kHelloTimeout = std::chrono::seconds(5);
constexpr std::size_t kMaxBacklog = 1024;

absl::Status CheckPlaces(const v1::JoinRequest& request) {
  const auto wrong = [](const auto&... parts) {
    return absl::InvalidArgumentError(absl::StrCat(parts...));
  };
  if (request.job_id().empty() || request.job_id().size() > 256) {
    return wrong("a job id has 1 to 256 bytes, not ", request.job_id().size());
  }
  if (request.size() < 1) return wrong("size ", request.size(), ": at least 1");
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
    status = absl::UnauthenticatedError("no session has this token");
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
  Job* job = open != jobs_.end() ? open->get() : OpenJob(request, uid, now);
  // The answer may come long after this function has returned.
  auto failed_at_once = std::make_shared<bool>(false);
  job->Join(
      entry->session, request,
      [failed_at_once, done](const absl::Status& outcome, const v1::JoinReply& reply) {
        *failed_at_once = !outcome.ok();
        done(outcome, reply);
      },
      now);
  if (*failed_at_once) {
    LogWarning("a rank could not join", {.job = request.job_id(), .rank = request.rank()});
    return;
  }
  // From here on `job` is told when this session goes.
  entry->job = job;
  LogInfo(absl::StrCat("pid ", entry->session->peer().pid, " joins"),
          {.job = request.job_id(), .rank = request.rank()});
}

Job* Engine::OpenJob(const v1::JoinRequest& request, uid_t uid, Clock::time_point now) {
  Job::Options options;
  options.job_id = request.job_id();
  options.uid = uid;
  options.size = request.size();
  options.local_size = request.local_size();
  options.rendezvous = request.rendezvous();
  options.secret = request.secret();
  options.node_name = options_.config.node_name;
  options.transport_address = transport_ == nullptr ? "" : transport_->LocalAddress();
  options.daemon_version = options_.version;
  options.communicator = CommunicatorId(next_communicator_++);
  options.start_timeout = OrDefault(request.start_timeout_ms(), options_.config.start_timeout);
  options.stall_warning = options_.config.stall_warning;
  options.operation_timeout =
      OrDefault(request.operation_timeout_ms(), options_.config.operation_timeout);
  options.fusion_threshold_bytes = request.fusion_threshold_bytes() > 0
                                       ? request.fusion_threshold_bytes()
                                       : options_.config.fusion_threshold;
  jobs_.push_back(std::make_unique<Job>(options, transport_.get(), now));
  Job* job = jobs_.back().get();
  const bool coordinates_here = request.size() == request.local_size() ||
                                options.rendezvous.empty() ||
                                options.rendezvous == options_.peer_address;
  if (coordinates_here) {
    JobCoordinator* coordinator = OpenCoordinator(
        options.job_id, options.size, options.start_timeout, options.fusion_threshold_bytes);
    job->UseLink(links_->LinkInside(job, coordinator), /*expects_challenge=*/false);
  } else {
    job->UseLink(links_->LinkOutside(job, options.rendezvous, now + options.start_timeout),
                 /*expects_challenge=*/true);
  }
  HandleStrangersOf(options.job_id, now);
  return job;
}

JobCoordinator* Engine::OpenCoordinator(const std::string& job_id, int size,
                                        std::chrono::nanoseconds start_timeout,
                                        std::uint64_t fusion_threshold) {
  for (const auto& coordinator : coordinators_) {
    if (coordinator->Open() && coordinator->job_id() == job_id) return coordinator.get();
  }
  JobCoordinator::Options options;
  options.job_id = job_id;
  options.size = size;
  const std::string random = RandomBytes(sizeof(options.wire_id));
  std::copy_n(random.data(), sizeof(options.wire_id), reinterpret_cast<char*>(&options.wire_id));
  options.generation = generations_[job_id]++;
  options.start_timeout = start_timeout;
  options.algorithms = options_.algorithms;
  options.learn = options_.config.learn_schedule;
  options.fusion_threshold_bytes = fusion_threshold;
  coordinators_.push_back(
      std::make_unique<JobCoordinator>(std::move(options), links_.get(), Clock::now()));
  return coordinators_.back().get();
}

const std::string* Engine::SecretOf(const std::string& job_id) const {
  for (const auto& job : jobs_) {
    if (job->options().job_id == job_id && job->state() == Job::State::kJoining) {
      return &job->options().secret;
    }
  }
  return nullptr;
}

void Engine::HandleStranger(StreamId stream, Clock::time_point now) {
  LinkSwitch::Stranger* stranger = links_->FindStranger(stream);
  if (stranger == nullptr || stranger->backlog.empty()) return;
  const v1::NodeMessage first = stranger->backlog.front();
  if (first.body_case() != v1::NodeMessage::kHello) {
    links_->TurnAway(stream, absl::InvalidArgumentError("the first message must be a Hello"));
    return;
  }
  const v1::Hello& hello = first.hello();
  if (hello.protocol_version() != kPeerProtocolVersion) {
    links_->TurnAway(stream, absl::FailedPreconditionError(absl::StrCat(
                                 "ringd ", hello.daemon_version(), " on ", hello.node_name(),
                                 " speaks peer protocol ", hello.protocol_version(), ", ringd ",
                                 options_.version, " on ", options_.config.node_name, " speaks ",
                                 kPeerProtocolVersion)));
    return;
  }
  const std::string* secret = SecretOf(hello.job_id());
  if (secret == nullptr) return;  // Wait for this node's own ranks.
  const std::string proof =
      ComputeJobProof(*secret, stranger->nonce, hello.job_id(), hello.node_name());
  if (!EqualInConstantTime(proof, hello.proof())) {
    LogWarning(absl::StrCat("node ", hello.node_name(), " at ", stranger->peer_address,
                            " has a wrong secret"),
               {.job = hello.job_id()});
    links_->TurnAway(stream, absl::UnauthenticatedError(absl::StrCat(
                                 "the job secret of the ranks on ", hello.node_name(),
                                 " differs from that of job '", hello.job_id(), "' on ",
                                 options_.config.node_name, " (RINGD_JOB_SECRET)")));
    return;
  }
  JobCoordinator* coordinator =
      OpenCoordinator(hello.job_id(), hello.size(),
                      OrDefault(hello.start_timeout_ms(), options_.config.start_timeout),
                      hello.fusion_threshold_bytes());
  const std::vector<v1::NodeMessage> backlog = std::move(stranger->backlog);
  links_->Introduce(stream, coordinator);
  coordinator->AddNode(stream, hello, now);
  for (std::size_t i = 1; i < backlog.size(); ++i) {
    coordinator->OnMessage(stream, backlog[i], now);
  }
}

void Engine::HandleStrangersOf(const std::string& job_id, Clock::time_point now) {
  std::vector<StreamId> waiting;
  for (const auto& [stream, stranger] : links_->strangers()) {
    if (!stranger.backlog.empty() && stranger.backlog.front().hello().job_id() == job_id) {
      waiting.push_back(stream);
    }
  }
  for (const StreamId stream : waiting) HandleStranger(stream, now);
}

void Engine::DropOldStrangers(Clock::time_point now) {
  std::vector<std::pair<StreamId, absl::Status>> dropped;
  for (const auto& [stream, stranger] : links_->strangers()) {
    if (stranger.backlog.empty()) {
      if (now - stranger.since > kHelloTimeout) {
        dropped.emplace_back(stream, absl::DeadlineExceededError("no Hello came on this stream"));
      }
      continue;
    }
    const v1::Hello& hello = stranger.backlog.front().hello();
    if (now - stranger.since > OrDefault(hello.start_timeout_ms(), options_.config.start_timeout)) {
      dropped.emplace_back(
          stream, absl::DeadlineExceededError(absl::StrCat("job '", hello.job_id(),
                                                           "' could not start: rank 0 and all "
                                                           "others of its node did not join on ",
                                                           options_.config.node_name)));
    } else if (stranger.backlog.size() > kMaxBacklog) {
      dropped.emplace_back(stream,
                           absl::ResourceExhaustedError("too many messages before the job"));
    }
  }
  for (const auto& [stream, reason] : dropped) links_->TurnAway(stream, reason);
}

// ---- PeerEvents: on the network's threads --------------------------------------------------------

void Engine::OnNodeConnected(StreamId stream, std::string peer_address) {
  commands_.Post([this, stream, peer_address] {
    LinkSwitch::Stranger stranger{peer_address, RandomBytes(kJobNonceBytes), Clock::now(), {}};
    v1::CoordinatorMessage message;
    message.mutable_challenge()->set_nonce(stranger.nonce);
    message.mutable_challenge()->set_protocol_version(kPeerProtocolVersion);
    message.mutable_challenge()->set_daemon_version(options_.version);
    links_->AddStranger(stream, std::move(stranger));
    network_->Send(stream, std::move(message));
  });
}

void Engine::OnNodeMessage(StreamId stream, v1::NodeMessage message) {
  commands_.Post([this, stream, message = std::move(message)] {
    const Clock::time_point now = Clock::now();
    if (JobCoordinator* coordinator = links_->CoordinatorOf(stream); coordinator != nullptr) {
      coordinator->OnMessage(stream, message, now);
      return;
    }
    LinkSwitch::Stranger* stranger = links_->FindStranger(stream);
    if (stranger == nullptr) return;
    stranger->backlog.push_back(message);
    HandleStranger(stream, now);
  });
}

void Engine::OnNodeDisconnected(StreamId stream, absl::Status why) {
  commands_.Post([this, stream, why = std::move(why)] {
    JobCoordinator* coordinator = links_->CoordinatorOf(stream);
    links_->OnStreamEnded(stream);
    if (coordinator != nullptr) coordinator->OnLinkLost(stream, why, Clock::now());
  });
}

void Engine::OnCoordinatorMessage(StreamId stream, v1::CoordinatorMessage message) {
  commands_.Post([this, stream, message = std::move(message)] {
    if (Job* job = links_->JobOf(stream); job != nullptr) {
      job->OnCoordinatorMessage(message, Clock::now());
    }
  });
}

void Engine::OnCoordinatorDisconnected(StreamId stream, absl::Status why) {
  commands_.Post([this, stream, why = std::move(why)] {
    Job* job = links_->JobOf(stream);
    links_->OnStreamEnded(stream);
    if (job != nullptr) job->OnLinkLost(why);
  });
}

}  // namespace ringd
