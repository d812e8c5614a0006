#include "client/cli/views/views.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "client/cli/views/json_output.h"
#include "client/cli/views/table.h"
#include "tests/client/cli/two_nodes.h"

namespace ringd::cli {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

}  // namespace

TEST_CASE("RenderUnanswered: a line for each engine that has not answered") {
  v1::QueuesReply reply;
  CHECK(RenderUnanswered(reply.unanswered()).empty());
  reply.add_unanswered("the engine of job 'x', pid 17, has not answered for 3 s");
  reply.add_unanswered("the engine of job 'a\x1b[2J', pid 18, has not answered for 4 s");
  const std::string text = RenderUnanswered(reply.unanswered());
  CHECK_THAT(text, StartsWith("ringctl: warning: the engine of job 'x', pid 17, has not answered "
                              "for 3 s\nringctl: warning: the engine of job 'a"));
  CHECK_THAT(text, Contains("pid 18, has not answered for 4 s\n") && !Contains("\x1b"));
}

TEST_CASE("ToJson: engines that have not answered are a list of sentences") {
  v1::JobsReply reply;
  CHECK(nlohmann::json::parse(ToJson(reply, true))["unanswered"].empty());
  reply.add_unanswered("pid 17 has not answered for 3 s");
  const auto json = nlohmann::json::parse(ToJson(reply, true));
  CHECK(json["unanswered"][0] == "pid 17 has not answered for 3 s");
}

TEST_CASE("RenderHiddenJobs: one line says how many jobs of others a list leaves out") {
  CHECK(RenderHiddenJobs(0).empty());
  CHECK_THAT(RenderHiddenJobs(1), Catch::Matchers::StartsWith("1 job of other users is not shown"));
  CHECK_THAT(RenderHiddenJobs(2), Catch::Matchers::StartsWith("2 jobs of other users are not") &&
                                      Contains("operators_group"));
  v1::JobsReply reply;
  CHECK(RenderJobs(reply, false, {}) == "No jobs on this node.\n");
  reply.set_hidden_jobs(2);
  CHECK(RenderJobs(reply, false, {}) == "No jobs of this user on this node.\n");
}

TEST_CASE("RenderStatus: says what runs where, and no word of refusals if there were none") {
  v1::StatusReply reply;
  reply.set_version("0.1.0");
  reply.set_node_name("node-a");
  reply.set_state("serving");
  reply.set_uptime_seconds(200);
  reply.set_socket("/run/ringd/ringd.sock");
  reply.set_build("5f21064dd00b");
  reply.set_sessions(4);
  reply.set_jobs(1);
  reply.set_arena_bytes_per_session(std::uint64_t{8} << 30);
  const std::string text = RenderStatus(reply, {});
  CHECK_THAT(text, Contains("ringd 0.1.0 on node-a: serving since 3 min 20 s\n"));
  CHECK_THAT(text, Contains("  socket          /run/ringd/ringd.sock\n"));
  CHECK_THAT(text, Contains("  build           5f21064dd00b\n"));
  CHECK_THAT(text, Contains("4 in 1 job\n"));
  CHECK_THAT(text, Contains("8 GiB a session"));
  CHECK_THAT(text, !Contains("refused"));
  CHECK_THAT(text, !Contains("\x1b"));
  reply.set_attaches_refused(1);
  CHECK_THAT(text, !Contains("replaced"));
  reply.set_engine_program_replaced(true);
  CHECK_THAT(RenderStatus(reply, {}), Contains("ringd-engine has been replaced on disk"));
  CHECK_THAT(text, !Contains("network"));
  reply.set_link_problems("eth1 has no carrier");
  CHECK_THAT(RenderStatus(reply, {}), Contains("  network         eth1 has no carrier\n"));
  CHECK_THAT(RenderStatus(reply, {}), Contains("1 attach refused, 0 sessions ended"));
  CHECK_THAT(RenderStatus(reply, {.colours = true}), Contains("\x1b[32mserving"));
}

TEST_CASE("views: an empty list is a sentence") {
  CHECK(RenderJobs({}, false, {.colours = true}) == "No jobs on this node.\n");
  CHECK(RenderCommunicators({}, {.colours = true}) == "No communicators on this node.\n");
  CHECK(RenderQueues({}, {.colours = true}) == "No ranks on this node.\n");
}

TEST_CASE("RenderJobs: names the cause of a failure and the ranks that are missing") {
  v1::JobsReply reply;
  v1::Job* failed = reply.add_jobs();
  failed->set_job_id("a");
  failed->set_state("failed");
  failed->set_size(4);
  failed->set_node_count(2);
  failed->set_failure("rank 3, pid 4711 on node-b, was killed by SIGKILL");
  v1::Job* joining = reply.add_jobs();
  joining->set_job_id("b");
  joining->set_state("joining");
  joining->set_size(3);
  joining->add_missing_ranks(1);
  joining->add_missing_ranks(2);
  joining->set_weight(42);
  const std::string text = RenderJobs(reply, false, {});
  CHECK_THAT(text,
             Contains("job a failed:\n  rank 3, pid 4711 on node-b, was killed by SIGKILL\n"));
  CHECK_THAT(text, Contains("job b waits for ranks 1, 2\n"));
  CHECK_THAT(text, Contains("JOB  STATE"));
  CHECK_THAT(text, Contains("WEIGHT") && Contains("42"));
}

TEST_CASE("RenderQueues: shows the oldest tensors of a rank and for whom they wait") {
  v1::QueuesReply reply;
  v1::RankQueue* queue = reply.add_queues();
  queue->set_job_id("run-1");
  queue->set_communicator(1);
  queue->set_communicator_name("tp");
  queue->set_rank(2);
  queue->set_pid(4711);
  queue->set_state("running");
  queue->set_submitted(1000);
  queue->set_completed(988);
  queue->set_in_flight(12);
  for (int i = 0; i < 12; ++i) {
    v1::PendingTensor* tensor = queue->add_pending();
    tensor->set_name("layer" + std::to_string(i));
    tensor->set_bytes(4096);
    tensor->set_age_seconds(7);
    tensor->set_stage("waiting");
    tensor->add_waits_for("rank 3, pid 4712 on node-b (stopped)");
  }
  const std::string text = RenderQueues(reply, {});
  CHECK_THAT(text,
             Contains("run-1     1     2  4711  running      1,000   988       0         12\n"));
  CHECK_THAT(text, Contains("job run-1, rank 2, communicator 'tp': 12 tensors in flight\n"));
  CHECK_THAT(text, Contains("layer7"));
  CHECK_THAT(text, !Contains("layer8"));
  CHECK_THAT(text, Contains("waiting  rank 3, pid 4712 on node-b (stopped)\n"));
  CHECK_THAT(text, Contains("and 4 more (--json tells more of them)\n"));
}

TEST_CASE("RenderQueues: says how many tensors, and ranks they wait for, are left out") {
  v1::QueuesReply reply;
  v1::RankQueue* queue = reply.add_queues();
  queue->set_job_id("run-1");
  queue->set_in_flight(12'346);
  queue->set_pending_left_out(12'345);
  v1::PendingTensor* tensor = queue->add_pending();
  tensor->set_name("layer0");
  tensor->add_waits_for("rank 3, pid 4712 on node-b");
  tensor->set_waits_for_left_out(188);
  const std::string text = RenderQueues(reply, {});
  CHECK_THAT(text, Contains("rank 3, pid 4712 on node-b; and 188 more\n"));
  CHECK_THAT(text, Contains("\n  and 12,345 more\n"));
}

v1::Stall RankThreeIsStopped() {
  v1::Stall stall;
  stall.set_seconds(12);
  stall.set_why("rank 3, pid 4003 on node-1 (stopped) has not submitted 'gradient'");
  v1::AwaitedRank& awaited = *stall.add_ranks();
  awaited.set_rank(3);
  awaited.set_state("stopped");
  stall.add_tensors("gradient");
  return stall;
}

TEST_CASE("views: a stall is shown by jobs, comms and queues: since when, and for whom") {
  const char* const why = "rank 3, pid 4003 on node-1 (stopped) has not submitted 'gradient'";
  v1::JobsReply jobs;
  jobs.add_jobs()->set_job_id("run-1");
  jobs.mutable_jobs(0)->set_state("stalled");
  *jobs.mutable_jobs(0)->mutable_stall() = RankThreeIsStopped();
  CHECK_THAT(RenderJobs(jobs, false, {}),
             Contains("job run-1 is stalled since 12 s:\n  ") && Contains(why));

  v1::CommunicatorsReply comms = TwoNodes();
  v1::Communicator& communicator = *comms.mutable_communicators(0);
  communicator.set_state("stalled");
  communicator.set_busy_share(1);
  *communicator.mutable_stall() = RankThreeIsStopped();
  communicator.mutable_members(3)->set_state("stopped");
  communicator.mutable_members(3)->set_awaited_seconds(12);
  const std::string text = RenderCommunicators(comms, {});
  CHECK_THAT(text, Contains("generation 0): stalled\n") && Contains(why));
  CHECK_THAT(text, Contains("operations/s, stalled since 12 s\n") && !Contains("busy"));
  CHECK_THAT(text, Contains("4003  stopped  since 12 s\n"));

  v1::QueuesReply queues;
  queues.add_queues()->set_job_id("run-1");
  queues.add_stalled_jobs()->set_job_id("run-1");
  *queues.mutable_stalled_jobs(0)->mutable_stall() = RankThreeIsStopped();
  CHECK_THAT(RenderQueues(queues, {}),
             Contains("job run-1 is stalled since 12 s:\n  ") && Contains(why));
}

TEST_CASE("RenderJobs: of those that have ended, the cause, when it was, and who took part") {
  v1::JobsReply reply;
  v1::Job* job = reply.add_jobs();
  job->set_job_id("run-1");
  job->set_state("failed");
  job->set_size(100);
  job->set_age_seconds(61);
  job->set_started_unix_seconds(1'790'000'000);
  job->set_ended_unix_seconds(1'790'000'061);
  job->set_failure("rank 3 was killed");
  for (int rank = 0; rank < 6; ++rank) *job->add_local_members() = Rank(rank, 0, "left");
  job->set_local_members_left_out(10);
  job->add_missing_ranks(7);
  const std::string text = RenderJobs(reply, true, {});
  CHECK_THAT(text, Contains("LASTS") && Contains("1 min 1 s"));
  CHECK_THAT(text,
             Contains("here: rank 0, pid 4000; ") && Contains("rank 3, pid 4003; and 12 more)"));
  CHECK_THAT(text, Contains(":\n  rank 3 was killed\n"));
  CHECK_THAT(text, !Contains("waits for"));
}

TEST_CASE("RenderJobs: many missing ranks are ranges, and a node without any word says so") {
  v1::JobsReply reply;
  v1::Job* job = reply.add_jobs();
  job->set_job_id("b");
  job->set_state("joining");
  for (const int rank : {1, 4, 5, 6, 7}) job->add_missing_ranks(rank);
  job->set_missing_left_out(1000);
  CHECK_THAT(RenderJobs(reply, false, {}),
             Contains("job b waits for ranks 1, 4-7 and 1,000 more\n"));
  job->clear_missing_ranks();
  job->set_waits_for("an answer of the ringd at 10.0.0.1:7117");
  CHECK_THAT(RenderJobs(reply, false, {}),
             Contains("job b waits for an answer of the ringd at 10.0.0.1:7117\n"));
}

TEST_CASE("RenderStatus: names admitted groups, and since when it drains") {
  v1::StatusReply reply;
  reply.set_state("draining");
  reply.set_uptime_seconds(200);
  reply.set_draining_seconds(12);
  reply.set_shows_users(true);
  CHECK_THAT(RenderStatus(reply, {}), Contains("draining since 12 s, up since 3 min 20 s\n") &&
                                          Contains("ringctl drain --undo takes them again"));
  reply.set_ending(true);
  CHECK_THAT(RenderStatus(reply, {}), Contains("ringd ends when its last trainer has gone"));
  CHECK_THAT(RenderStatus(reply, {}), Contains("admits          its own user and root\n"));
  reply.add_allowed_groups("gpu");
  reply.set_operators_group("admins");
  CHECK_THAT(RenderStatus(reply, {}), Contains("its own user, root, group gpu\n"));
  CHECK_THAT(RenderStatus(reply, {}), Contains("group admins\n"));
  reply.add_allowed_users("alice");
  reply.add_allowed_groups("users");
  CHECK_THAT(RenderStatus(reply, {}), Contains("root, alice, groups gpu, users\n"));
}

// The widest line of a table: those that begin a paragraph of words do not count.
std::size_t WidestTableLine(const std::string& text) {
  std::size_t widest = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) widest = std::max(widest, DisplayWidth(line));
  return widest;
}

TEST_CASE("views: with long names and large numbers, everything fits 80 columns") {
  const Look look{.colours = false, .width = 80};
  const std::string name = "resnet50-imagenet-lr0.1-seed17-2026-11-24T05-30-12-with-a-long-name";
  v1::JobsReply jobs;
  v1::Job* job = jobs.add_jobs();
  job->set_job_id(name);
  job->set_state("stalled");
  job->set_size(65536);
  job->set_node_count(8192);
  job->set_weight(100);
  job->set_uid(4'000'000'000);
  job->set_age_seconds(86400 * 100 + 7200);
  job->set_rendezvous("node-a.cluster.example.org:7117");
  for (const bool ended : {false, true}) {
    const std::string text = RenderJobs(jobs, ended, look);
    CHECK(WidestTableLine(text) <= 80);
    CHECK_THAT(text, Contains("res") && Contains("..."));
    CHECK_THAT(RenderJobs(jobs, ended, {}), Contains(name) && Contains("RENDEZVOUS"));
  }

  v1::CommunicatorsReply comms = TwoNodes();
  v1::Communicator& communicator = *comms.mutable_communicators(0);
  communicator.set_learned_operations(123'456'789);
  for (v1::Member& member : *communicator.mutable_members()) member.set_host(name);
  communicator.mutable_links(0)->set_host(name);
  communicator.mutable_links(0)->set_connections_reason(name + name);
  v1::Bucket* bucket = communicator.add_buckets();
  bucket->set_bytes(std::uint64_t{64} << 20);
  bucket->set_occurrences(123'456'789);
  bucket->set_first_tensor("module.encoder.layers.11.self_attention.output.dense.weight");
  bucket->set_last_tensor("module.encoder.layers.11.self_attention.output.dense.bias");
  CHECK(WidestTableLine(RenderCommunicators(comms, look)) <= 80);

  v1::QueuesReply queues;
  v1::RankQueue* queue = queues.add_queues();
  queue->set_job_id(name);
  queue->set_communicator(123);
  queue->set_rank(65535);
  queue->set_pid(4194304);
  queue->set_state("stalled");
  queue->set_submitted(12'345'678);
  queue->set_completed(12'345'678);
  queue->set_in_flight(4096);
  CHECK(WidestTableLine(RenderQueues(queues, look)) <= 80);
  v1::PendingTensor* tensor = queue->add_pending();
  tensor->set_name(bucket->first_tensor());
  tensor->set_bytes(std::uint64_t{1000} << 20);
  tensor->set_age_seconds(605);
  tensor->set_stage("negotiating");
  for (int rank = 0; rank < 8; ++rank)
    tensor->add_waits_for("rank 3, pid 4712 on node-b (stopped)");
  const std::string text = RenderQueues(queues, look);
  CHECK_THAT(text, Contains("rank 3, pid 4712 on node-b (stopped), 7 more\n"));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.find("in flight") == std::string::npos) CHECK(DisplayWidth(line) <= 80);
  }
}

TEST_CASE("ToJson: has the names of the .proto file and fields that are 0") {
  const std::string text = ToJson(TwoNodes(), false);
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  REQUIRE(json.is_object());
  CHECK(json["schema_version"] == 1);
  const nlohmann::json& communicator = json["communicators"][0];
  CHECK(communicator["job_id"] == "run-1");
  CHECK(communicator["bytes_reduced"] == "3145728");  // 64 bits: digits in a string
  CHECK(communicator["bytes_sent"] == "0");
  CHECK(communicator["members"].size() == 4);
  CHECK(communicator["buckets"].is_array());
  const std::string line = ToJson(TwoNodes(), true);
  CHECK(line.find('\n') == line.size() - 1);
  CHECK(nlohmann::json::parse(line, nullptr, false) == json);
}

}  // namespace ringd::cli
