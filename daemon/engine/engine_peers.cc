// Nodes that open a stream to here: proving that they belong to a job, waiting for this node's own ranks
// of it; and what comes through streams.
#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/engine/engine.h"
#include "daemon/jobs/membership/hello_match.h"
#include "daemon/jobs/membership/protocol_version.h"
#include "daemon/logging/log.h"
#include "daemon/peers/job_proof.h"
#include "proto/door/secure_random.h"

namespace ringd {
namespace {

constexpr auto kHelloTimeout = std::chrono::seconds(5);
constexpr std::size_t kMaxBacklog = 1024;
// Of what an unproven node says and costs.
constexpr std::size_t kMaxStrangers = 1024;
constexpr std::size_t kMaxBacklogBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxNameBytes = 256;
constexpr std::chrono::hours kLongestStrangerWait{1};
constexpr int kMostRanksNamed = 4096;
// One that did not prove itself can't shorten the others' time by more than this.
constexpr auto kAboutTogether = std::chrono::seconds(2);

absl::Status CheckHello(const v1::Hello& hello, const EngineOptions& here) {
  if (hello.node_name().size() > kMaxNameBytes || hello.job_id().size() > kMaxNameBytes ||
      hello.daemon_version().size() > kMaxNameBytes ||
      hello.fast_path_address().size() > kMaxNameBytes) {
    return absl::InvalidArgumentError("a name in the Hello is too long");
  }
  if (hello.protocol_version() != kPeerProtocolVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("ringd ", hello.daemon_version(), " on ", hello.node_name(),
                     " speaks peer protocol ", hello.protocol_version(), ", ringd ", here.version,
                     " on ", here.config.node_name, " speaks ", kPeerProtocolVersion));
  }
  if (hello.nonce().size() != kJobNonceBytes || hello.proof().size() != kJobProofBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("nonce and proof in a Hello have ", kJobNonceBytes, " bytes each"));
  }
  return absl::OkStatus();
}

// What a node hears that means a job of its user, and does not belong to it.
absl::Status WhyNotAdmitted(HelloMatch::Outcome outcome, const Job::Options& job,
                            const v1::Hello& hello) {
  if (outcome == HelloMatch::Outcome::kOneNodeOnly) {
    return absl::FailedPreconditionError(
        absl::StrCat("job '", job.job_id, "' on ", job.node_name, " has one node: all its ",
                     job.size, " ranks are there, and none on ", hello.node_name()));
  }
  return absl::UnauthenticatedError(
      absl::StrCat("job '", job.job_id, "' of ", job.node_name, " has another key: ",
                   DescribeKeyDifference({hello.node_name(), hello.has_cluster_key()},
                                         {job.node_name, job.has_cluster_key})));
}

}  // namespace

Clock::time_point Engine::StartDeadlineOf(const LinkSwitch::Stranger& stranger) const {
  const std::uint32_t ms = stranger.backlog.front().hello().start_timeout_ms();
  const std::chrono::nanoseconds wanted =
      ms > 0 ? std::chrono::milliseconds(ms) : options_.config.start_timeout;
  return stranger.since + std::min<std::chrono::nanoseconds>(wanted, kLongestStrangerWait);
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
  if (absl::Status status = CheckHello(hello, options_); !status.ok()) {
    links_->TurnAway(stream, status);
    return;
  }
  std::vector<const Job*> jobs;
  std::vector<GatheringJob> gathering;
  for (const auto& job : jobs_) {
    if (job->state() != Job::State::kJoining || job->options().job_id != hello.job_id()) continue;
    const Job::Options& options = job->options();
    if (!options.coordinates_here) continue;
    jobs.push_back(job.get());
    gathering.push_back({options.uid, KeyForControl(options.key), !options.secret.empty(),
                         options.size == options.local_size});
  }
  const HelloMatch match = MatchHello(gathering, hello, stranger->nonce);
  using Outcome = HelloMatch::Outcome;
  if (match.outcome == Outcome::kNotYet || match.outcome == Outcome::kAnotherUser) {
    if (match.outcome == Outcome::kAnotherUser) {
      const Job::Options& other = jobs[match.job]->options();
      NoteTurnedAway(other, absl::StrCat("the ranks on ", hello.node_name(), " are of uid ",
                                         hello.uid(), ", and without a job secret ",
                                         "(RINGD_JOB_SECRET) only those of uid ", other.uid,
                                         " belong to this job"));
    }
    if (draining_) {
      links_->TurnAway(stream, absl::FailedPreconditionError(absl::StrCat(
                                   "ringd on ", options_.config.node_name, " is draining")));
    }
    return;  // Wait for this node's own ranks.
  }
  const Job& meant = *jobs[match.job];
  if (match.outcome != Outcome::kMember) {
    const absl::Status refusal = WhyNotAdmitted(match.outcome, meant.options(), hello);
    LogWarning(absl::StrCat("node ", hello.node_name(), " at ", stranger->peer_address,
                            " is turned away: ", refusal.message()),
               meant.Fields());
    NoteTurnedAway(meant.options(), std::string(refusal.message()));
    links_->TurnAway(stream, refusal);
    return;
  }
  JobCoordinator* coordinator = OpenCoordinator(meant.options());
  const std::vector<v1::NodeMessage> backlog = std::move(stranger->backlog);
  v1::CoordinatorMessage proof;
  proof.mutable_proof()->set_proof(
      CoordinatorProof(KeyForControl(meant.options().key),
                       {stranger->nonce, hello.nonce(), hello.job_id(), hello.node_name()}));
  network_->Send(stream, std::move(proof));
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
  std::set<std::pair<std::string, uid_t>> jobs;
  for (const auto& [stream, stranger] : links_->strangers()) {
    if (stranger.backlog.empty()) {
      if (now - stranger.since > kHelloTimeout) {
        dropped.emplace_back(stream, absl::DeadlineExceededError("no Hello came on this stream"));
      }
      continue;
    }
    if (now > StartDeadlineOf(stranger)) {
      const v1::Hello& hello = stranger.backlog.front().hello();
      jobs.emplace(hello.job_id(), hello.uid());
    }
  }
  for (const auto& [stream, reason] : dropped) links_->TurnAway(stream, reason);
  for (const auto& [job_id, uid] : jobs) TurnAwayAllOf(job_id, uid, now);
}

// Nodes of a job whose coordinating node has no rank hear the same if they came about together.
void Engine::TurnAwayAllOf(const std::string& job_id, uid_t uid, Clock::time_point now) {
  std::vector<StreamId> streams;
  std::vector<std::string> nodes;
  std::set<int> present;
  int size = 0;
  for (const auto& [stream, stranger] : links_->strangers()) {
    if (stranger.backlog.empty()) continue;
    const v1::Hello& hello = stranger.backlog.front().hello();
    if (hello.job_id() != job_id || hello.uid() != uid) continue;
    if (now + kAboutTogether > StartDeadlineOf(stranger)) streams.push_back(stream);
    nodes.push_back(hello.node_name());
    size = std::clamp(hello.size(), size, kMostRanksNamed);
    for (const v1::NodeMessage& message : stranger.backlog) {
      if (message.has_rank_joined()) present.insert(message.rank_joined().rank().rank());
    }
  }
  std::vector<int> missing;
  for (int rank = 0; rank < size; ++rank) {
    if (present.count(rank) == 0) missing.push_back(rank);
  }
  const absl::Status reason = absl::DeadlineExceededError(absl::StrCat(
      "job '", job_id, "' of uid ", uid,
      " could not start in time: ", missing.size() == 1 ? "rank " : "ranks ",
      absl::StrJoin(missing, ", "), " did not join, none of them on ", options_.config.node_name,
      " where rank 0 should be; present: ", absl::StrJoin(present, ", "), " on ",
      absl::StrJoin(nodes, ", ")));
  for (const StreamId stream : streams) links_->TurnAway(stream, reason);
}

// ---- PeerEvents: on the network's threads --------------------------------------------------------

void Engine::OnNodeConnected(StreamId stream, std::string peer_address) {
  commands_.Post([this, stream, peer_address] {
    if (links_->strangers().size() >= kMaxStrangers) {
      network_->Close(stream, absl::ResourceExhaustedError("too many nodes wait for their jobs"));
      return;
    }
    LinkSwitch::Stranger stranger{peer_address, RandomBytes(kJobNonceBytes), Clock::now(), {}, 0};
    v1::CoordinatorMessage message;
    message.mutable_challenge()->set_nonce(stranger.nonce);
    message.mutable_challenge()->set_protocol_version(kPeerProtocolVersion);
    message.mutable_challenge()->set_daemon_version(options_.version);
    message.mutable_challenge()->set_node_name(options_.config.node_name);
    message.mutable_challenge()->set_has_cluster_key(!options_.cluster_key.empty());
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
    stranger->backlog_bytes += message.ByteSizeLong();
    if (stranger->backlog_bytes > kMaxBacklogBytes || stranger->backlog.size() >= kMaxBacklog) {
      links_->TurnAway(stream, absl::ResourceExhaustedError("too much was said before the job"));
      return;
    }
    stranger->backlog.push_back(message);
    HandleStranger(stream, now);
  });
}

void Engine::OnNodeDisconnected(StreamId stream, absl::Status why) {
  commands_.Post([this, stream, why = std::move(why)] {
    JobCoordinator* coordinator = links_->CoordinatorOf(stream);
    links_->OnStreamEnded(stream);
    if (coordinator != nullptr) coordinator->OnLinkLost(stream, why);
  });
}

void Engine::OnCoordinatorMessage(StreamId stream, v1::CoordinatorMessage message) {
  commands_.Post([this, stream, message = std::move(message)] {
    Job* job = links_->JobOf(stream);
    if (job == nullptr) return;
    job->OnCoordinatorMessage(message, Clock::now());
    if (job->state() == Job::State::kFailed && !job->TrustsCoordinator()) {
      network_->Close(stream, job->failure());
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
