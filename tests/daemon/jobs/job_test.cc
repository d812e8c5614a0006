#include "daemon/jobs/job.h"

#include <catch2/catch.hpp>
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/loopback/loopback_hub.h"
#include "daemon/jobs/exit_report.h"
#include "daemon/jobs/measuring/all_reduce_prober.h"
#include "tests/daemon/jobs/recording_link.h"
#include "tests/daemon/lanes/rank_exchange/attached_rank.h"

namespace ringd {
namespace {

Job::Options OptionsOf(std::optional<std::uint32_t> generation) {
  Job::Options options;
  options.job_id = "train";
  options.size = 2;
  options.local_size = 2;
  options.node_name = "node-a";
  options.communicator = CommunicatorId(7);
  options.generation = generation;
  return options;
}

// The wish that the job's node, which is the first, and another try small all-reduces.
v1::CoordinatorMessage TrialOf(const Transport& ours, const Transport& theirs,
                               std::uint64_t wire_id) {
  v1::CoordinatorMessage message;
  v1::ProbedNodes& nodes = *message.mutable_all_reduce_trial();
  nodes.set_wire_id(wire_id);
  for (const Transport* transport : {&ours, &theirs}) {
    nodes.add_node_names(transport->LocalAddress());
    nodes.add_transport_addresses(transport->LocalAddress());
  }
  return message;
}

TEST_CASE("Job: measures when asked, and when asked again reports only what was asked last") {
  LoopbackHub hub;
  const auto ours = hub.CreateTransport();
  const auto theirs = hub.CreateTransport();
  const Clock::time_point now = Clock::now();
  std::vector<v1::NodeMessage> sent;
  Job job(OptionsOf(0), ours.get(), now);
  job.UseLink(std::make_unique<RecordingLink>(sent));
  sent.clear();  // the Hello

  // The other node is not there yet.
  job.OnCoordinatorMessage(TrialOf(*ours, *theirs, 1), now);
  job.Advance(now);
  CHECK(sent.empty());
  CHECK_FALSE(job.Finished());
  v1::CoordinatorMessage again = TrialOf(*ours, *theirs, 2);
  job.OnCoordinatorMessage(again, now);
  again.mutable_all_reduce_trial()->set_node_index(1);
  auto other = AllReduceProber::Start(*theirs, again.all_reduce_trial(), {});
  REQUIRE(other.ok());
  const Clock::time_point deadline = now + std::chrono::seconds(20);
  while (sent.empty() && Clock::now() < deadline) {
    ours->Progress();
    theirs->Progress();
    (*other)->Poll();
    job.Advance(now);
  }
  REQUIRE(sent.size() == 1);
  CHECK(sent[0].trial_report().error().empty());
  CHECK(sent[0].trial_report().times_size() > 0);
  CHECK(job.Finished());

  // What makes no sense is answered at once.
  again.mutable_all_reduce_trial()->set_node_index(2);
  job.OnCoordinatorMessage(again, now);
  REQUIRE(sent.size() == 2);
  CHECK_FALSE(sent[1].trial_report().error().empty());
}

v1::JoinRequest RequestOf(int rank, const std::string& secret) {
  v1::JoinRequest request;
  request.set_rank(rank);
  request.set_local_rank(rank);
  request.set_size(2);
  request.set_local_size(2);
  request.set_secret(secret);
  return request;
}

// What a rank hears at once; OK: nothing.
absl::Status Join(Job& job, const AttachedRank& rank, const v1::JoinRequest& request) {
  auto answer = std::make_shared<absl::Status>();
  job.Join(rank.session, request,
           [answer](const absl::Status& status, const v1::JoinReply&) { *answer = status; });
  return *answer;
}

TEST_CASE("Job: whoever has a wrong secret is told that, and harms nobody whatever else he says") {
  std::vector<v1::NodeMessage> sent;
  Job::Options options = OptionsOf(0);
  options.secret = "ours";
  Job job(options, nullptr, Clock::now());
  job.UseLink(std::make_unique<RecordingLink>(sent));
  const AttachedRank first, stranger;
  REQUIRE(Join(job, first, RequestOf(0, "ours")).ok());
  v1::JoinRequest request = RequestOf(1, GENERATE("theirs", ""));
  switch (GENERATE(0, 1, 2, 3, 4, 5)) {
    case 0:
      request.set_size(3);
      break;
    case 1:
      request.set_local_size(1);
      break;
    case 2:
      request.set_rendezvous("elsewhere:1");
      break;
    case 3:
      request.set_weight(7);
      break;
    case 4:
      request.set_fusion("off");
      break;
    default:
      request.set_rank(0);
  }
  CHECK(Join(job, stranger, request).code() == absl::StatusCode::kUnauthenticated);
  CHECK(job.state() == Job::State::kJoining);
  // One of the job that says so ends it.
  request.set_secret("ours");
  CHECK_FALSE(Join(job, stranger, request).ok());
  CHECK(job.state() == Job::State::kFailed);
}

TEST_CASE("Job: a launcher's word comes to the job whose secret it has, among all of that name") {
  std::list<std::unique_ptr<Job>> jobs;
  std::vector<v1::NodeMessage> sent;
  AttachedRank ranks[3];
  const char* const secrets[] = {"ours", "", "theirs"};
  for (int i = 0; i < 3; ++i) {
    Job::Options options = OptionsOf(0);
    options.secret = secrets[i];
    options.uid = static_cast<uid_t>(1000 + i);
    jobs.push_back(std::make_unique<Job>(options, nullptr, Clock::now()));
    jobs.back()->UseLink(std::make_unique<RecordingLink>(sent));
    REQUIRE(Join(*jobs.back(), ranks[i], RequestOf(0, secrets[i])).ok());
  }
  const auto report = [&](int rank, const char* secret, uid_t reporter) {
    v1::ReportExitRequest request;
    request.set_job_id("train");
    request.set_rank(rank);
    request.set_secret(secret);
    request.set_exit_code(3);
    return DeliverExitReport(jobs, request,
                             [reporter](const Job& job) { return job.options().uid == reporter; });
  };
  CHECK(report(0, "theirs", 1002).ok());
  CHECK(report(0, "ours", 1000).ok());
  CHECK(report(99, "theirs", 1002).code() == absl::StatusCode::kNotFound);
  CHECK(report(0, "guessed", 1002).code() == absl::StatusCode::kUnauthenticated);
  // Nobody learns which jobs others have.
  CHECK(report(0, "guessed", 4711).code() == absl::StatusCode::kNotFound);
  // Without a secret nobody can show that it is the launcher.
  CHECK(report(0, "", 1001).code() == absl::StatusCode::kNotFound);
}

TEST_CASE("Job: a line of the log about it names job, communicator and, once known, generation") {
  const Job here(OptionsOf(3), nullptr, Clock::now());
  CHECK(here.Fields().job == "train");
  CHECK(here.Fields().communicator == 7u);
  CHECK(here.Fields().generation == 3u);
  CHECK_FALSE(here.Fields().rank.has_value());

  const Job elsewhere(OptionsOf({}), nullptr, Clock::now());
  CHECK(elsewhere.Fields().communicator == 7u);
  CHECK_FALSE(elsewhere.Fields().generation.has_value());
}

TEST_CASE("Job: a line about one of its ranks names the rank as well") {
  const Job job(OptionsOf(0), nullptr, Clock::now());
  CHECK(job.Fields(Rank(1)).rank == 1);
  CHECK(job.Fields(Rank(1)).job == "train");
  CHECK(job.Fields(Rank(1)).communicator == 7u);
  CHECK(job.Fields(Rank(1)).generation == 0u);
}

}  // namespace
}  // namespace ringd
