#include "client/cli/views.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "client/cli/json_output.h"

namespace ringd::cli {
namespace {

using Catch::Matchers::Contains;

v1::Member Rank(int rank, int node, const char* state) {
  v1::Member member;
  member.set_rank(rank);
  member.set_local_rank(rank % 2);
  member.set_pid(4000 + rank);
  member.set_host("node-" + std::to_string(node));
  member.set_node_index(node);
  member.set_state(state);
  return member;
}

v1::CommunicatorsReply TwoNodes() {
  v1::CommunicatorsReply reply;
  reply.set_schema_version(1);
  v1::Communicator* communicator = reply.add_communicators();
  communicator->set_communicator(1);
  communicator->set_job_id("run-1");
  communicator->set_name("world");
  communicator->set_state("running");
  communicator->set_size(4);
  communicator->set_node_count(2);
  communicator->set_coordinator("node-0");
  communicator->set_backend("ucx");
  communicator->set_tensors(1234);
  communicator->set_operations(56);
  communicator->set_bytes_reduced(3 << 20);
  communicator->set_bytes_reduced_per_second(1.5 * (1 << 30));
  communicator->set_operations_per_second(12);
  communicator->set_busy_share(0.37);
  for (int rank = 0; rank < 4; ++rank) {
    *communicator->add_members() = Rank(rank, rank / 2, "running");
  }
  v1::Link* link = communicator->add_links();
  link->set_node_index(1);
  link->set_host("node-1");
  link->set_transports("tcp/lo");
  link->set_connections(3);
  link->set_bulk_connections(2);
  link->set_connections_reason("as set");
  return reply;
}

}  // namespace

TEST_CASE("RenderHiddenJobs: one line says how many jobs of others a list leaves out") {
  CHECK(RenderHiddenJobs(0).empty());
  CHECK_THAT(RenderHiddenJobs(1), Catch::Matchers::StartsWith("1 job of other users is not shown"));
  CHECK_THAT(RenderHiddenJobs(2), Catch::Matchers::StartsWith("2 jobs of other users are not") &&
                                      Contains("operators_group"));
  v1::JobsReply reply;
  CHECK(RenderJobs(reply, false) == "No jobs on this node.\n");
  reply.set_hidden_jobs(2);
  CHECK(RenderJobs(reply, false) == "No jobs of this user on this node.\n");
}

TEST_CASE("RenderCommunicators: shows the ring, and cuts a long one short") {
  v1::CommunicatorsReply reply = TwoNodes();
  CHECK_THAT(RenderCommunicators(reply, false), !Contains("ring  "));
  for (const char* node : {"node-0", "node-1", "node-2"}) {
    reply.mutable_communicators(0)->add_ring(node);
  }
  CHECK_THAT(RenderCommunicators(reply, false), Contains("node-0 > node-1 > node-2 > node-0\n"));
  for (int node = 3; node < 40; ++node) {
    reply.mutable_communicators(0)->add_ring("node-" + std::to_string(node));
  }
  CHECK_THAT(RenderCommunicators(reply, false), Contains("node-11 > 28 more > node-0\n"));
}

TEST_CASE("RenderCommunicators: of ranks on one node, how they get at ordinary memory") {
  v1::CommunicatorsReply reply = TwoNodes();
  CHECK_THAT(RenderCommunicators(reply, false), !Contains("outside arena"));
  reply.mutable_communicators(0)->set_ordinary_memory("read directly");
  CHECK_THAT(RenderCommunicators(reply, false), Contains("outside arena   read directly\n"));
}

TEST_CASE("RenderCommunicators: of ranks on several nodes, their fast path, or why there is none") {
  v1::CommunicatorsReply reply = TwoNodes();
  CHECK_THAT(RenderCommunicators(reply, false), !Contains("fast path"));
  v1::FastPath& path = *reply.mutable_communicators(0)->mutable_fast_path();
  path.set_why_not("ringd on node-b takes no part");
  CHECK_THAT(RenderCommunicators(reply, false),
             Contains("fast path       none: ringd on node-b takes no part\n"));
  path.set_limit_bytes(8192);
  path.set_completed(1);
  path.set_given_up(2);
  CHECK_THAT(RenderCommunicators(reply, false),
             Contains("none: ringd on node-b takes no part; 1 operation, 2 given up\n"));
  path.clear_why_not();
  path.set_open(true);
  CHECK_THAT(RenderCommunicators(reply, false),
             Contains("fast path       up to 8 KiB; 1 operation, 2 given up\n"));
  path.set_flat_bytes(8192);
  CHECK_THAT(RenderCommunicators(reply, false),
             Contains("fast path       up to 8 KiB; 1 operation, 2 given up\n"));
  path.set_flat_bytes(2500);
  CHECK_THAT(
      RenderCommunicators(reply, false),
      Contains("fast path       up to 8 KiB, by a tree of nodes from 2.4 KiB on; 1 operation"));
}

TEST_CASE("RenderStatus: says what runs where, and no word of refusals if there were none") {
  v1::StatusReply reply;
  reply.set_version("0.1.0");
  reply.set_node_name("node-a");
  reply.set_state("serving");
  reply.set_uptime_seconds(200);
  reply.set_socket("/run/ringd/ringd.sock");
  reply.set_sessions(4);
  reply.set_jobs(1);
  reply.set_arena_bytes_per_session(std::uint64_t{8} << 30);
  const std::string text = RenderStatus(reply, false);
  CHECK_THAT(text, Contains("ringd 0.1.0 on node-a: serving since 3 min 20 s\n"));
  CHECK_THAT(text, Contains("  socket          /run/ringd/ringd.sock\n"));
  CHECK_THAT(text, Contains("4 in 1 job\n"));
  CHECK_THAT(text, Contains("8 GiB a session"));
  CHECK_THAT(text, !Contains("refused"));
  CHECK_THAT(text, !Contains("\x1b"));
  reply.set_attaches_refused(1);
  CHECK_THAT(RenderStatus(reply, false), Contains("1 attach refused, 0 sessions ended"));
  CHECK_THAT(RenderStatus(reply, true), Contains("\x1b[32mserving"));
}

TEST_CASE("views: an empty list is a sentence") {
  CHECK(RenderJobs({}, true) == "No jobs on this node.\n");
  CHECK(RenderCommunicators({}, true) == "No communicators on this node.\n");
  CHECK(RenderQueues({}, true) == "No ranks on this node.\n");
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
  const std::string text = RenderJobs(reply, false);
  CHECK_THAT(text,
             Contains("job a failed:\n  rank 3, pid 4711 on node-b, was killed by SIGKILL\n"));
  CHECK_THAT(text, Contains("job b waits for ranks 1, 2\n"));
  CHECK_THAT(text, Contains("JOB  STATE"));
  CHECK_THAT(text, Contains("WEIGHT") && Contains("42"));
}

TEST_CASE("RenderCommunicators: shows members, links, bytes and rates") {
  const std::string text = RenderCommunicators(TwoNodes(), false);
  CHECK_THAT(text, Contains("job run-1, world (communicator 1, generation 0): running\n"));
  CHECK_THAT(text, Contains("4 ranks on 2 nodes; this is node 0, coordinator node-0"));
  CHECK_THAT(text, Contains("3 MiB in 56 operations, 1,234 tensors submitted"));
  CHECK_THAT(text, Contains("1.5 GiB/s, 12 operations/s, busy 37 %"));
  CHECK_THAT(text, Contains("   3      1     1  node-1  4003  running\n"));
  CHECK_THAT(text, Contains("      1  node-1  tcp/lo                3         2  as set\n"));
  CHECK_THAT(text, !Contains("BUCKET"));
}

TEST_CASE("RenderQueues: shows the oldest tensors of a rank and for whom they wait") {
  v1::QueuesReply reply;
  v1::RankQueue* queue = reply.add_queues();
  queue->set_job_id("run-1");
  queue->set_communicator(1);
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
  const std::string text = RenderQueues(reply, false);
  CHECK_THAT(text,
             Contains("run-1     1     2  4711  running      1,000   988       0         12\n"));
  CHECK_THAT(text, Contains("job run-1, rank 2: 12 tensors in flight\n"));
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
  const std::string text = RenderQueues(reply, false);
  CHECK_THAT(text, Contains("rank 3, pid 4712 on node-b; and 188 more\n"));
  CHECK_THAT(text, Contains("\n  and 12,345 more\n"));
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
