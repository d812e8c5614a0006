// `ringctl comms`.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/views/human_units.h"
#include "client/cli/views/plan_view.h"
#include "client/cli/views/table.h"
#include "client/cli/views/view_parts.h"
#include "client/cli/views/views.h"

namespace ringd::cli {
namespace {

constexpr int kRingShown = 12;

std::string MemberTable(const google::protobuf::RepeatedPtrField<v1::Member>& members,
                        const Look& look) {
  const bool any_awaited = std::any_of(members.begin(), members.end(), [](const auto& member) {
    return member.awaited_seconds() > 0;
  });
  Table table({{"RANK", Align::kRight},
               {"LOCAL", Align::kRight},
               {"NODE", Align::kRight},
               {"HOST", Align::kLeft, Fit::kShortened},
               {"PID", Align::kRight},
               {"STATE"},
               {any_awaited ? "AWAITED" : ""}});
  for (const v1::Member& member : members) {
    table.AddRow({absl::StrCat(member.rank()), absl::StrCat(member.local_rank()),
                  absl::StrCat(member.node_index()), OrDash(member.host()),
                  member.pid() == 0 ? "-" : absl::StrCat(member.pid()), StateCell(member.state()),
                  member.awaited_seconds() > 0
                      ? Cell(absl::StrCat("since ", HumanDuration(member.awaited_seconds())),
                             Colour::kYellow)
                      : Cell("")});
  }
  return table.Render(look, "  ");
}

std::string LearnedText(const v1::Communicator& communicator) {
  return absl::StrCat("epoch ", communicator.schedule_epoch(), ": ",
                      Count(communicator.learned_buckets(), "learned bucket", "learned buckets"),
                      ", ", HumanCount(communicator.learned_operations()), " operations in them, ",
                      Count(communicator.schedule_departures(), "departure", "departures"));
}

// The first nodes of the ring by name.
std::string RingText(const v1::Communicator& communicator) {
  const auto shown = std::min(communicator.ring_size(), kRingShown);
  const std::vector<std::string> names(communicator.ring().begin(),
                                       communicator.ring().begin() + shown);
  const int more = communicator.ring_size() - shown;
  return absl::StrCat(absl::StrJoin(names, " > "),
                      more > 0 ? absl::StrCat(" > ", more, " more") : "", " > ", names.front());
}

std::string RankExchangeText(const v1::RankExchange& exchange) {
  std::string text =
      exchange.open()
          ? absl::StrCat("up to ", HumanBytes(static_cast<double>(exchange.limit_bytes())))
          : absl::StrCat("none: ", OrDash(exchange.why_not()));
  if (exchange.limit_bytes() == 0) return text;
  if (exchange.open() && exchange.flat_bytes() > 0 &&
      exchange.flat_bytes() < exchange.limit_bytes()) {
    absl::StrAppend(&text, ", by a tree of nodes from ",
                    HumanBytes(static_cast<double>(exchange.flat_bytes())), " on");
  }
  absl::StrAppend(&text, "; ", Count(exchange.completed(), "operation", "operations"), ", ",
                  exchange.given_up(), " given up");
  return text;
}

// An engine from before that does not tell.
std::string RegisteredText(const v1::CommunicatorDevice& device) {
  if (!device.has_registered_bytes()) return "";
  const auto bytes = static_cast<double>(device.registered_bytes());
  if (device.registered_bytes() > 0) return absl::StrCat(", ", HumanBytes(bytes), " registered");
  return absl::StrCat(", none registered (", OrDash(device.why_not_registered()), ")");
}

std::string DeviceText(const v1::CommunicatorDevice& device, int size) {
  if (device.launched_by() == "host") {
    return absl::StrCat("rank ", device.rank(), " on ", device.gpu(), ": the host path",
                        device.error().empty() ? "" : absl::StrCat(" (", device.error(), ")"));
  }
  std::string text = absl::StrCat("rank ", device.rank(), " on ", device.gpu(), ": NCCL ",
                                  OrDash(device.nccl_version()), ", its rank ", device.nccl_rank(),
                                  " of ", size, ", ", device.state());
  if (!device.error().empty()) absl::StrAppend(&text, " (", device.error(), ")");
  absl::StrAppend(&text, "; slab of ", HumanBytes(static_cast<double>(device.slab_bytes())), ", ",
                  HumanBytes(static_cast<double>(device.fusion_bytes())), " for packing",
                  RegisteredText(device), "; the ", device.launched_by(), " launches");
  return text;
}

std::string DeviceLines(const v1::Communicator& communicator, const Look& look) {
  std::string out;
  bool in_turns = false;
  for (const v1::CommunicatorDevice& device : communicator.devices()) {
    absl::StrAppend(&out, Line("GPU", DeviceText(device, communicator.size()), look));
    in_turns = in_turns || (device.mps() == "off" && device.launched_by() == "engine");
  }
  if (in_turns) absl::StrAppend(&out, Line("no MPS", kEngineWithoutMps, look));
  return out;
}

// While a job is stalled an operation that waits would count as busy.
std::string NowText(const v1::Communicator& communicator) {
  const std::string text =
      absl::StrCat(HumanRate(communicator.bytes_reduced_per_second()), ", ",
                   HumanNumber(communicator.operations_per_second()), " operations/s");
  if (communicator.has_stall()) {
    return absl::StrCat(text, ", stalled since ", HumanDuration(communicator.stall().seconds()));
  }
  // The engine has no part in what the ranks of one node combine themselves.
  if (communicator.node_count() == 1 && communicator.busy_share() == 0) return text;
  return absl::StrCat(text, ", busy ", HumanShare(communicator.busy_share()));
}

// What is about other nodes; nothing where there are none and nothing has gone through the engine.
std::string NegotiationLines(const v1::Communicator& communicator, const Look& look) {
  if (communicator.node_count() == 1 && communicator.negotiation_messages() == 0 &&
      communicator.bytes_sent() == 0 && communicator.learned_buckets() == 0) {
    return Line("on the wire", "nothing: all ranks are on this node", look);
  }
  return absl::StrCat(
      Line(
          "on the wire",
          absl::StrCat(HumanBytes(static_cast<double>(communicator.bytes_sent())), " sent, ",
                       HumanBytes(static_cast<double>(communicator.bytes_received())), " received"),
          look),
      Line("negotiation",
           absl::StrCat(Count(communicator.negotiation_messages(), "message", "messages"),
                        " in all, ", HumanNumber(communicator.negotiation_messages_per_step()),
                        " in the last step"),
           look),
      communicator.by_order() ? "" : Line("schedule", LearnedText(communicator), look));
}

std::string RenderCommunicator(const v1::Communicator& communicator, const Look& look) {
  std::string out = absl::StrCat(
      Paint(absl::StrCat("job ", communicator.job_id(), ", ", communicator.name()), Colour::kBold,
            look.colours),
      " (communicator ", communicator.communicator(), ", generation ", communicator.generation(),
      "): ", Paint(communicator.state(), StateColour(communicator.state()), look.colours), "\n",
      FailureLine(communicator.failure(), look));
  absl::StrAppend(
      &out,
      Line("members",
           absl::StrCat(
               Count(static_cast<std::uint64_t>(communicator.size()), "rank", "ranks"), " on ",
               Count(static_cast<std::uint64_t>(communicator.node_count()), "node", "nodes"),
               "; this is node ", communicator.node_index(), ", coordinator ",
               OrDash(communicator.coordinator())),
           look),
      Line("backend", OrDash(communicator.backend()), look),
      communicator.by_order() ? Line("matching", "by order", look) : "",
      Line("reduced",
           absl::StrCat(HumanBytes(static_cast<double>(communicator.bytes_reduced())), " in ",
                        Count(communicator.operations(), "operation", "operations"), ", ",
                        Count(communicator.tensors(), "tensor", "tensors"), " submitted"),
           look),
      Line("now", NowText(communicator), look),
      communicator.has_stall() ? Line("waits for", communicator.stall().why(), look) : "",
      NegotiationLines(communicator, look));
  if (!communicator.ordinary_memory().empty()) {
    absl::StrAppend(&out, Line("outside arena", communicator.ordinary_memory(), look));
  }
  if (communicator.has_rank_exchange()) {
    absl::StrAppend(&out,
                    Line("rank exchange", RankExchangeText(communicator.rank_exchange()), look));
  }
  absl::StrAppend(&out, DeviceLines(communicator, look));
  if (!communicator.ring().empty()) {
    absl::StrAppend(&out, Line("ring", RingText(communicator), look));
  }
  if (!communicator.plan().fusion().empty()) {
    absl::StrAppend(&out, Line("link", DescribeLink(communicator.plan().link()), look));
  }

  // --plan has the reasons in full.
  Table links({{"TO NODE", Align::kRight},
               {"HOST", Align::kLeft, Fit::kShortened},
               {"TRANSPORTS", Align::kLeft, Fit::kShortened},
               {"CONNECTIONS", Align::kRight},
               {"FOR BULK", Align::kRight},
               {"WHY", Align::kLeft, Fit::kOptional}});
  for (const v1::Link& link : communicator.links()) {
    links.AddRow({absl::StrCat(link.node_index()), OrDash(link.host()), OrDash(link.transports()),
                  HumanCount(static_cast<std::uint64_t>(link.connections())),
                  HumanCount(static_cast<std::uint64_t>(link.bulk_connections())),
                  OrDash(link.connections_reason())});
  }
  Table buckets({{"BUCKET", Align::kRight},
                 {"BYTES", Align::kRight},
                 {"TENSORS", Align::kRight},
                 {"TIMES", Align::kRight},
                 {"FROM", Align::kLeft, Fit::kShortened},
                 {"TO", Align::kLeft, Fit::kShortened}});
  for (const v1::Bucket& bucket : communicator.buckets()) {
    buckets.AddRow({absl::StrCat(bucket.channel()), HumanBytes(static_cast<double>(bucket.bytes())),
                    HumanCount(bucket.tensors()), HumanCount(bucket.occurrences()),
                    bucket.first_tensor(), bucket.last_tensor()});
  }
  for (const std::string& table : {MemberTable(communicator.members(), look),
                                   links.Render(look, "  "), buckets.Render(look, "  ")}) {
    if (!table.empty()) absl::StrAppend(&out, "\n", table);
  }
  return out;
}

}  // namespace

std::string RenderCommunicators(const v1::CommunicatorsReply& reply, const Look& look) {
  if (reply.communicators().empty()) return NothingHere("communicators", reply.hidden_jobs());
  std::vector<std::string> blocks;
  for (const v1::Communicator& communicator : reply.communicators()) {
    blocks.push_back(RenderCommunicator(communicator, look));
  }
  return absl::StrJoin(blocks, "\n");
}

}  // namespace ringd::cli
