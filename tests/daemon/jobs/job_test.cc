#include "daemon/jobs/job.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/loopback/loopback_hub.h"
#include "daemon/jobs/measuring/all_reduce_prober.h"

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

// Keeps what a job sends to its coordinator.
class RecordingLink final : public CoordinatorLink {
 public:
  explicit RecordingLink(std::vector<v1::NodeMessage>& sent) : sent_(sent) {}
  void Send(v1::NodeMessage message) override { sent_.push_back(std::move(message)); }

 private:
  std::vector<v1::NodeMessage>& sent_;
};

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
  job.UseLink(std::make_unique<RecordingLink>(sent), /*expects_challenge=*/false);
  sent.clear();  // the Hello

  // The other node is not there yet.
  job.OnCoordinatorMessage(TrialOf(*ours, *theirs, 1), now);
  job.Advance(now);
  CHECK(sent.empty());
  CHECK_FALSE(job.Finished());
  v1::CoordinatorMessage again = TrialOf(*ours, *theirs, 2);
  job.OnCoordinatorMessage(again, now);
  again.mutable_all_reduce_trial()->set_node_index(1);
  auto other = AllReduceProber::Start(*theirs, again.all_reduce_trial(), 1);
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
