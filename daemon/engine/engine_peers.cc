// What comes through streams, and nodes that open one to here: they have the key of a job that this
// ringd coordinates.
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/engine/engine.h"
#include "daemon/jobs/membership/protocol_version.h"
#include "daemon/logging/log.h"
#include "proto/door/key_difference.h"

namespace ringd {
namespace {

constexpr auto kHelloTimeout = std::chrono::seconds(5);
constexpr std::size_t kMaxNameBytes = 256;

absl::Status CheckHello(const v1::NodeMessage& message, const Job::Options& job) {
  if (!message.has_hello()) return absl::InvalidArgumentError("the first message must be a Hello");
  const v1::Hello& hello = message.hello();
  if (hello.node_name().size() > kMaxNameBytes || hello.daemon_version().size() > kMaxNameBytes ||
      hello.rank_exchange_address().size() > kMaxNameBytes) {
    return absl::InvalidArgumentError("a name in the Hello is too long");
  }
  if (hello.protocol_version() != kPeerProtocolVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("ringd ", hello.daemon_version(), " on ", hello.node_name(),
                     " speaks peer protocol ", hello.protocol_version(), ", ringd ",
                     job.daemon_version, " on ", job.node_name, " speaks ", kPeerProtocolVersion,
                     ": all nodes of a job need one release, which runs when ringd is restarted"));
  }
  if (hello.job_id() != job.job_id) {
    return absl::InvalidArgumentError("the Hello is of another job than the stream");
  }
  return absl::OkStatus();
}

// Without secrets one whose number is another may mean this job. Mostly its own user's is still to
// come.
bool IsOfAnotherUser(const RefusedNode& node, const Job::Options& job) {
  return job.secret.empty() && node.uid != job.uid;
}

// Why it did not get in.
std::string DescribeRefusal(const RefusedNode& node, const Job::Options& job) {
  const std::string whose = absl::StrCat("job '", job.job_id, "' of ", job.node_name);
  if (job.size == job.local_size) {
    return absl::StrCat(whose, " has one node: all its ", job.size,
                        " ranks are there, and none on ", node.node_name);
  }
  if (IsOfAnotherUser(node, job)) {
    return absl::StrCat("the ranks on ", node.node_name, " are of uid ", node.uid,
                        ", and without a job secret (RINGD_JOB_SECRET) only those of uid ", job.uid,
                        " belong to this job");
  }
  return absl::StrCat(whose, " has another key: ",
                      DescribeKeyDifference({node.node_name, node.has_cluster_key},
                                            {job.node_name, job.has_cluster_key}));
}

}  // namespace

Job* Engine::FindExpected(ExpectationId id) const {
  const auto found = expected_.find(id);
  return found == expected_.end() || !found->second->Open() ? nullptr : found->second;
}

void Engine::StopExpecting() {
  std::erase_if(expected_, [this](const auto& entry) {
    if (entry.second->Open() && !entry.second->Finished()) return false;
    network_->StopExpecting(entry.first);
    return true;
  });
}

void Engine::GreetNode(StreamId stream, const v1::NodeMessage& message, Clock::time_point now) {
  const LinkSwitch::Stranger* const stranger = links_->FindStranger(stream);
  if (stranger == nullptr) return;
  Job* const job = FindExpected(stranger->job);
  if (job == nullptr) {
    links_->TurnAway(stream,
                     absl::AbortedError("the job has started without this node, or has ended"));
    return;
  }
  if (absl::Status status = CheckHello(message, job->options()); !status.ok()) {
    LogWarning(absl::StrCat(stranger->from, " is turned away: ", status.message()), job->Fields());
    TellTurnedAway(job->options(), std::string(status.message()));
    links_->TurnAway(stream, status);
    return;
  }
  // The job's own, whatever it does by now: another one would wait for ranks that are here.
  JobCoordinator* const coordinator = links_->CoordinatorOf(*job);
  if (coordinator == nullptr) {
    links_->TurnAway(stream, absl::AbortedError("the job has ended while this node came to it"));
    return;
  }
  links_->Introduce(stream, coordinator);
  coordinator->AddNode(stream, message.hello(), now);
}

void Engine::DropOldStrangers(Clock::time_point now) {
  std::vector<StreamId> dropped;
  for (const auto& [stream, stranger] : links_->strangers()) {
    if (now - stranger.since > kHelloTimeout) dropped.push_back(stream);
  }
  for (const StreamId stream : dropped) {
    links_->TurnAway(stream, absl::DeadlineExceededError("no Hello came on this stream"));
  }
}

// ---- PeerEvents: on the network's threads
// --------------------------------------------------------

void Engine::OnNodeConnected(StreamId stream, ExpectationId job, std::string from) {
  commands_.Post([this, stream, job, from = std::move(from)] {
    links_->AddStranger(stream, {job, from, Clock::now()});
  });
}

void Engine::OnNodeRefused(ExpectationId id, RefusedNode node) {
  commands_.Post([this, id, node = std::move(node)] {
    const Job* const job = FindExpected(id);
    if (job == nullptr) return;
    const std::string why = DescribeRefusal(node, job->options());
    TellTurnedAway(job->options(), why);
    // It comes again and again, and anybody can be it.
    if (!IsOfAnotherUser(node, job->options()) && refusals_.Pass(Clock::now()).has_value()) {
      LogWarning(absl::StrCat(node.from, " is turned away: ", why), job->Fields());
    }
  });
}

void Engine::OnNodeMessage(StreamId stream, v1::NodeMessage message, MessageHold hold) {
  commands_.Post([this, stream, message = std::move(message), hold = std::move(hold)]() mutable {
    const Clock::time_point now = Clock::now();
    if (JobCoordinator* coordinator = links_->CoordinatorOf(stream); coordinator != nullptr) {
      coordinator->OnMessage(stream, std::move(message), now);
    } else {
      GreetNode(stream, message, now);
    }
  });
}

void Engine::OnNodeDisconnected(StreamId stream, absl::Status why) {
  commands_.Post([this, stream, why = std::move(why)] {
    JobCoordinator* coordinator = links_->CoordinatorOf(stream);
    links_->OnStreamEnded(stream);
    if (coordinator != nullptr) coordinator->OnLinkLost(stream, why);
  });
}

void Engine::OnCoordinatorIsHere(StreamId stream) {
  commands_.Post([this, stream] {
    Job* const job = links_->JobOf(stream);
    links_->OnStreamEnded(stream);
    if (job == nullptr || job->state() != Job::State::kJoining) return;
    links_->Deliver(Clock::now());
    JobCoordinator* const coordinator = OpenCoordinator(job->options());
    job->CoordinateHere(coordinator->generation());
    Coordinate(job, coordinator);
  });
}

void Engine::OnCoordinatorMessage(StreamId stream, v1::CoordinatorMessage message,
                                  MessageHold hold) {
  commands_.Post([this, stream, message = std::move(message), hold = std::move(hold)]() mutable {
    Job* job = links_->JobOf(stream);
    if (job != nullptr) job->OnCoordinatorMessage(std::move(message), Clock::now());
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
