#include "client/cli/views/plan_view.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "client/cli/views/human_units.h"
#include "client/cli/views/table.h"
#include "proto/base/text.h"

namespace ringd::cli {
namespace {

std::string LocalMinute(std::uint64_t unix_seconds) {
  const absl::Time time = absl::FromUnixSeconds(static_cast<std::int64_t>(unix_seconds));
  return absl::FormatTime("%Y-%m-%d %H:%M", time, absl::LocalTimeZone());
}

std::string DescribeFusion(const std::string& fusion) {
  if (fusion == "learned") return "learned: planned from measurements";
  if (fusion == "pinned") return "pinned: planned once, then left alone";
  if (fusion == "off") return "off: each tensor travels alone";
  double bytes = 0;
  if (!absl::SimpleAtod(fusion, &bytes)) return fusion;
  return absl::StrCat("fixed: buckets are filled up to ", HumanBytes(bytes));
}

std::string DescribeOrigin(const v1::Plan& plan) {
  const std::string& origin = plan.origin();
  if (origin == "none") return "nothing has been learned yet";
  if (origin == "kept") return "kept from an earlier job";
  if (origin == "replanned") {
    return absl::StrCat("planned anew from measurements, ", plan.replans(),
                        plan.replans() == 1 ? " time" : " times");
  }
  return "learned from this job's first steps";
}

// "12.3 ms, 2.1 ms after the last tensor", and how it compares with the plan in force.
std::string StepText(double ms, const v1::Plan& plan) {
  std::string text = absl::StrCat(HumanMilliseconds(ms), ", ",
                                  HumanMilliseconds(std::max(0.0, ms - plan.last_ready_ms())),
                                  " after the last tensor");
  if (ms != plan.predicted_ms() && plan.predicted_ms() > 0) {
    absl::StrAppendFormat(&text, " (%+.1f %%)", 100 * (ms / plan.predicted_ms() - 1));
  }
  return text;
}

std::string DescribeAlgorithms(const v1::LinkFigures& link) {
  const auto size = [](std::uint64_t bytes) { return HumanBytes(static_cast<double>(bytes)); };
  std::string text;
  if (link.flat_all_reduce_bytes() > 0) {
    absl::StrAppend(&text, "up to ", size(link.flat_all_reduce_bytes()), " through one node, ");
  }
  if (link.small_all_reduce_bytes() > link.flat_all_reduce_bytes()) {
    absl::StrAppend(&text, "up to ", size(link.small_all_reduce_bytes()),
                    " by recursive doubling, ");
  }
  return absl::StrCat(text, text.empty() ? "all by a ring" : "above by a ring");
}

// "64 B 95 / 180, 1 KiB 110 / 190 us through one node / by recursive doubling, 2026-11-21 20:15".
std::string DescribeTrial(const v1::LinkFigures& link) {
  const auto times = [](std::string* out, const v1::AllReduceTimes& tried) {
    absl::StrAppend(out, HumanBytes(static_cast<double>(tried.bytes())), " ",
                    HumanNumber(tried.flat_us()), " / ", HumanNumber(tried.doubling_us()));
  };
  return absl::StrCat(absl::StrJoin(link.tried(), ", ", times),
                      " us through one node / by recursive doubling, ",
                      LocalMinute(link.tried_unix_seconds()));
}

// Text that is too long goes on below itself.
std::string Label(absl::string_view label, absl::string_view text, const Look& look) {
  return absl::StrFormat("  %-15s %s\n", label,
                         WrapWords(CleanLine(text), std::string(18, ' '), look.width));
}

std::string BucketTable(const v1::Plan& plan, const Look& look) {
  Table table({{"BUCKET", Align::kRight},
               {"TENSORS", Align::kRight, Fit::kOptional},
               {"BYTES", Align::kRight},
               {"READY", Align::kRight, Fit::kOptional},
               {"START", Align::kRight, Fit::kOptional},
               {"END", Align::kRight, Fit::kOptional},
               {"TAKES", Align::kRight},
               {"MEASURED", Align::kRight},
               {"WAITED", Align::kRight},
               {"TIMES", Align::kRight},
               {"FROM", Align::kLeft, Fit::kShortened},
               {"TO", Align::kLeft, Fit::kShortened}});
  for (const v1::PlannedBucket& bucket : plan.buckets()) {
    table.AddRow({absl::StrCat(bucket.channel()), HumanCount(bucket.tensors()),
                  HumanBytes(static_cast<double>(bucket.bytes())),
                  HumanMilliseconds(bucket.ready_ms()),
                  HumanMilliseconds(bucket.predicted_start_ms()),
                  HumanMilliseconds(bucket.predicted_end_ms()),
                  HumanMilliseconds(bucket.predicted_end_ms() - bucket.predicted_start_ms()),
                  bucket.occurrences() == 0 ? "-" : HumanMilliseconds(bucket.measured_ms()),
                  bucket.occurrences() == 0 ? "-" : HumanMilliseconds(bucket.waited_ms()),
                  HumanCount(bucket.occurrences()), bucket.first_tensor(), bucket.last_tensor()});
  }
  return table.Render(look, "  ");
}

// "node1 by 2 connections, 1 of them for bulk: a further one was refused (...)".
std::string DescribeConnections(const v1::Link& link) {
  std::string text = absl::StrCat(link.host(), " by ", link.connections(),
                                  link.connections() == 1 ? " connection" : " connections");
  if (link.bulk_connections() != link.connections()) {
    absl::StrAppend(&text, ", ", link.bulk_connections(), " of them for bulk");
  }
  return link.connections_reason().empty() ? text
                                           : absl::StrCat(text, ": ", link.connections_reason());
}

std::string DescribeRing(const v1::Communicator& communicator) {
  const std::string& source = communicator.ring_source();
  if (source == "setting") return "in the order of the setting ring_order";
  std::string text = source == "measured" ? "follows the measured links" : "in the order of ranks";
  if (communicator.links_measured_unix_seconds() == 0) return text;
  return absl::StrCat(text, source == "measured" ? "" : ", though links were measured", ", ",
                      LocalMinute(communicator.links_measured_unix_seconds()));
}

// Of many nodes only what the ring takes.
std::string LinkTable(const v1::Communicator& communicator, const Look& look) {
  constexpr int kMostShown = 56;
  const bool all = communicator.measured_links_size() <= kMostShown;
  Table table({{"FROM", Align::kLeft, Fit::kShortened},
               {"TO", Align::kLeft, Fit::kShortened},
               {"LATENCY", Align::kRight},
               {"GBIT/S", Align::kRight},
               {"IN THE RING"}});
  for (const v1::MeasuredLink& link : communicator.measured_links()) {
    if (!all && !link.in_ring()) continue;
    table.AddRow({link.from(), link.to(), HumanMilliseconds(link.latency_us() / 1e3),
                  HumanNumber(link.gbit_per_second()), link.in_ring() ? "yes" : "-"});
  }
  return absl::StrCat("\n", table.Render(look, "  "));
}

std::string RenderPlan(const v1::Communicator& communicator, const Look& look) {
  const v1::Plan& plan = communicator.plan();
  std::string out =
      absl::StrCat(Paint(absl::StrCat("job ", communicator.job_id(), ", ", communicator.name()),
                         Colour::kBold, look.colours),
                   " (communicator ", communicator.communicator(), ")\n");
  if (plan.fusion().empty()) {
    return absl::StrCat(out,
                        communicator.node_count() == 1
                            ? "  All its ranks are on this node: there is no link to plan for.\n"
                            : "  Its coordinator has not told its plan yet.\n");
  }
  absl::StrAppend(
      &out, Label("fusion", DescribeFusion(plan.fusion()), look),
      Label("plan", absl::StrCat(DescribeOrigin(plan), ", epoch ", plan.schedule_epoch()), look),
      Label("link", DescribeLink(plan.link()), look),
      Label("an operation",
            absl::StrCat(HumanNumber(plan.link().overhead_us()), " us besides; ",
                         DescribeAlgorithms(plan.link())),
            look));
  if (!plan.link().tried().empty()) {
    absl::StrAppend(&out, Label("small ones took", DescribeTrial(plan.link()), look));
  }
  for (const v1::Link& link : communicator.links()) {
    if (link.connections() > 0)
      absl::StrAppend(&out, Label("to node", DescribeConnections(link), look));
  }
  absl::StrAppend(&out, Label("ring", DescribeRing(communicator), look));
  if (!communicator.ring_misfit().empty()) {
    absl::StrAppend(&out, Label("ring_order", communicator.ring_misfit(), look));
  }
  if (!communicator.measured_links().empty()) {
    absl::StrAppend(&out, LinkTable(communicator, look));
  }
  if (plan.buckets().empty()) return out;
  absl::StrAppend(
      &out, communicator.measured_links().empty() ? "" : "\n",
      Label("last tensor", absl::StrCat("ready after ", HumanMilliseconds(plan.last_ready_ms())),
            look),
      Label("this plan", StepText(plan.predicted_ms(), plan), look),
      Label("64 MiB buckets", StepText(plan.predicted_fixed_64mib_ms(), plan), look),
      Label("no fusion", StepText(plan.predicted_per_tensor_ms(), plan), look), "\n",
      BucketTable(plan, look));
  return out;
}

}  // namespace

std::string HumanMilliseconds(double ms) {
  if (ms == 0) return "0 ms";
  const int digits = std::clamp(2 - static_cast<int>(std::floor(std::log10(std::abs(ms)))), 0, 3);
  return absl::StrFormat("%.*f ms", digits, ms);
}

std::string DescribeLink(const v1::LinkFigures& link) {
  std::string text = absl::StrCat(link.source(), ", ", HumanNumber(link.latency_us()), " us and ",
                                  HumanNumber(link.gbit_per_second()), " Gbit/s");
  if (link.source() == "measured") {
    absl::StrAppend(&text, " from ", HumanCount(link.samples()), " all-reduces");
  }
  return text;
}

std::string RenderPlans(const v1::CommunicatorsReply& reply, const Look& look) {
  if (reply.communicators().empty()) return "No communicators on this node.\n";
  std::vector<std::string> blocks;
  for (const v1::Communicator& communicator : reply.communicators()) {
    blocks.push_back(RenderPlan(communicator, look));
  }
  return absl::StrJoin(blocks, "\n");
}

}  // namespace ringd::cli
