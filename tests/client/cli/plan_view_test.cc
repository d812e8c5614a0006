#include "client/cli/views/plan_view.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "client/cli/views/json_output.h"

namespace ringd::cli {
namespace {

using Catch::Matchers::Contains;

v1::CommunicatorsReply Planned() {
  v1::CommunicatorsReply reply;
  v1::Communicator* communicator = reply.add_communicators();
  communicator->set_communicator(1);
  communicator->set_job_id("run-1");
  communicator->set_name("world");
  communicator->set_node_count(4);
  v1::Plan& plan = *communicator->mutable_plan();
  plan.set_fusion("learned");
  plan.set_origin("replanned");
  plan.set_replans(2);
  plan.set_schedule_epoch(9);
  plan.mutable_link()->set_latency_us(45);
  plan.mutable_link()->set_gbit_per_second(0.94);
  plan.mutable_link()->set_overhead_us(20);
  plan.mutable_link()->set_source("measured");
  plan.mutable_link()->set_samples(1280);
  plan.mutable_link()->set_small_all_reduce_bytes(32 << 10);
  plan.set_last_ready_ms(80);
  plan.set_predicted_ms(95.1);
  plan.set_predicted_fixed_64mib_ms(104.6);
  plan.set_predicted_per_tensor_ms(140);
  v1::PlannedBucket* bucket = plan.add_buckets();
  bucket->set_channel(7);
  bucket->set_tensors(12);
  bucket->set_bytes(3 << 20);
  bucket->set_ready_ms(60);
  bucket->set_predicted_start_ms(61);
  bucket->set_predicted_end_ms(95.1);
  bucket->set_measured_ms(36.25);
  bucket->set_waited_ms(7.77);
  bucket->set_occurrences(123);
  bucket->set_first_tensor("fc.weight");
  bucket->set_last_tensor("conv1.weight");
  return reply;
}

}  // namespace

TEST_CASE("RenderPlans: shows the link, the plans beside each other, and each bucket") {
  const std::string text = RenderPlans(Planned(), {});
  CHECK_THAT(text, Contains("job run-1, world"));
  CHECK_THAT(text, Contains("learned: planned from measurements"));
  CHECK_THAT(text, Contains("planned anew from measurements, 2 times, epoch 9"));
  CHECK_THAT(text, Contains("measured, 45 us and 0.94 Gbit/s from 1,280 all-reduces"));
  CHECK_THAT(text, Contains("20 us besides; up to 32 KiB by recursive doubling, above by a ring"));
  CHECK_THAT(text, Contains("95.1 ms, 15.1 ms after the last tensor\n"));
  CHECK_THAT(text, Contains("105 ms, 24.6 ms after the last tensor (+10.0 %)"));
  CHECK_THAT(text,
             Contains("34.1 ms") && Contains("36.2 ms") && Contains("7.77 ms") && Contains("123"));
  CHECK_THAT(text, Contains("fc.weight") && Contains("conv1.weight"));
}

TEST_CASE("RenderPlans: names the algorithms that are in use") {
  v1::CommunicatorsReply reply = Planned();
  v1::LinkFigures& link = *reply.mutable_communicators(0)->mutable_plan()->mutable_link();
  link.set_flat_all_reduce_bytes(8 << 10);
  CHECK_THAT(RenderPlans(reply, {}),
             Contains("up to 8 KiB through one node, up to 32 KiB by recursive doubling, above"));
  link.set_small_all_reduce_bytes(0);
  CHECK_THAT(RenderPlans(reply, {}), Contains("up to 8 KiB through one node, above by a ring"));
  link.set_flat_all_reduce_bytes(0);
  CHECK_THAT(RenderPlans(reply, {}), Contains("besides; all by a ring"));
}

TEST_CASE("RenderPlans: shows what small all-reduces took where they were tried") {
  v1::CommunicatorsReply reply = Planned();
  CHECK_THAT(RenderPlans(reply, {}), !Contains("small ones took"));
  v1::LinkFigures& link = *reply.mutable_communicators(0)->mutable_plan()->mutable_link();
  link.set_tried_unix_seconds(1'790'000'000);
  for (const std::uint64_t bytes : {64, 1024}) {
    v1::AllReduceTimes* tried = link.add_tried();
    tried->set_bytes(bytes);
    tried->set_flat_us(95);
    tried->set_doubling_us(180);
  }
  CHECK_THAT(RenderPlans(reply, {}),
             Contains("small ones took 64 B 95 / 180, 1 KiB 95 / 180 us through one node / by "
                      "recursive doubling, 2026-09-2"));
}

TEST_CASE(
    "RenderPlans: says where the order of the ring comes from, and shows the measured links") {
  v1::CommunicatorsReply reply = Planned();
  v1::Communicator& communicator = *reply.mutable_communicators(0);
  communicator.set_ring_source("ranks");
  CHECK_THAT(RenderPlans(reply, {}), Contains("ring            in the order of ranks\n"));
  CHECK_THAT(RenderPlans(reply, {}), !Contains("GBIT/S"));
  communicator.set_ring_source("setting");
  CHECK_THAT(RenderPlans(reply, {}), Contains("in the order of the setting ring_order\n"));
  CHECK_THAT(RenderPlans(reply, {}), !Contains("does not name"));
  communicator.set_ring_misfit("does not name node-c, so it comes last");
  CHECK_THAT(RenderPlans(reply, {}),
             Contains("  ring_order      does not name node-c, so it comes last\n"));

  communicator.set_ring_source("measured");
  communicator.set_links_measured_unix_seconds(1'790'000'000);
  v1::MeasuredLink* link = communicator.add_measured_links();
  link->set_from("node-a");
  link->set_to("node-c");
  link->set_latency_us(123);
  link->set_gbit_per_second(0.87);
  link->set_in_ring(true);
  const std::string text = RenderPlans(reply, {});
  CHECK_THAT(text, Contains("follows the measured links, 2026-09-2"));
  CHECK_THAT(text, Contains("node-a") && Contains("node-c") && Contains("0.123 ms"));
  CHECK_THAT(text, Contains("0.87") && Contains("yes"));

  // Of many only the ring's.
  for (int i = 0; i < 100; ++i) communicator.add_measured_links()->set_from("elsewhere");
  CHECK_THAT(RenderPlans(reply, {}), Contains("node-a") && !Contains("elsewhere"));
}

TEST_CASE("RenderPlans: says how many connections lead to each neighbour, and why") {
  v1::CommunicatorsReply reply = Planned();
  v1::Communicator& communicator = *reply.mutable_communicators(0);
  v1::Link* link = communicator.add_links();
  link->set_host("node-b");
  CHECK_THAT(RenderPlans(reply, {}), !Contains("node-b by"));
  link->set_connections(1);
  link->set_bulk_connections(1);
  CHECK_THAT(RenderPlans(reply, {}), Contains("to node         node-b by 1 connection\n"));
  link->set_connections(3);
  link->set_bulk_connections(2);
  link->set_connections_reason("one was refused");
  CHECK_THAT(RenderPlans(reply, {}),
             Contains("node-b by 3 connections, 2 of them for bulk: one was refused\n"));
}

TEST_CASE("RenderPlans: says why there is no plan") {
  CHECK(RenderPlans({}, {}) == "No communicators on this node.\n");
  v1::CommunicatorsReply reply;
  reply.add_communicators()->set_node_count(1);
  CHECK_THAT(RenderPlans(reply, {}), Contains("no link to plan for"));
  reply.mutable_communicators(0)->set_node_count(2);
  CHECK_THAT(RenderPlans(reply, {}), Contains("has not told"));
  reply.mutable_communicators(0)->mutable_plan()->set_fusion("off");
  reply.mutable_communicators(0)->mutable_plan()->set_origin("none");
  const std::string text = RenderPlans(reply, {});
  CHECK_THAT(text, Contains("each tensor travels alone") && Contains("nothing has been learned"));
  CHECK_THAT(text, !Contains("64 MiB buckets"));
}

TEST_CASE("RenderPlans: what other nodes are called gives the terminal no command") {
  v1::CommunicatorsReply reply;
  v1::Communicator* const communicator = reply.add_communicators();
  communicator->set_node_count(2);
  communicator->set_ring_misfit("node \x1b[2J");
  CHECK_THAT(RenderPlans(reply, {}), !Contains("\x1b"));
}

TEST_CASE("RenderPlans: names the other settings of fusion, and kept plans") {
  v1::CommunicatorsReply reply = Planned();
  v1::Plan& plan = *reply.mutable_communicators(0)->mutable_plan();
  plan.set_fusion("67108864");
  plan.set_origin("kept");
  CHECK_THAT(RenderPlans(reply, {}), Contains("filled up to 64 MiB"));
  CHECK_THAT(RenderPlans(reply, {}), Contains("kept from an earlier job"));
  plan.set_fusion("pinned");
  CHECK_THAT(RenderPlans(reply, {}), Contains("planned once"));
}

TEST_CASE("Plans in JSON have all figures by name") {
  const auto json = nlohmann::json::parse(ToJson(Planned(), true));
  const auto& plan = json["communicators"][0]["plan"];
  CHECK(plan["origin"] == "replanned");
  CHECK(plan["link"]["gbit_per_second"] == 0.94);
  CHECK(plan["predicted_per_tensor_ms"] == 140);
  CHECK(plan["buckets"][0]["measured_ms"] == 36.25);
}

TEST_CASE("HumanMilliseconds: three digits") {
  CHECK(HumanMilliseconds(0) == "0 ms");
  CHECK(HumanMilliseconds(0.0424) == "0.042 ms");
  CHECK(HumanMilliseconds(1.234) == "1.23 ms");
  CHECK(HumanMilliseconds(12.34) == "12.3 ms");
  CHECK(HumanMilliseconds(1234.5) == "1234 ms");
}

}  // namespace ringd::cli
