#include "client/cli/views.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "client/cli/human_units.h"
#include "client/cli/plan_view.h"
#include "client/cli/table.h"

namespace ringd::cli {
namespace {

// Pending tensors shown of one rank; --json has all that ringd tells.
constexpr int kPendingShown = 8;
constexpr int kRingShown = 12;
// Labels of a block's lines are padded to this.
constexpr std::size_t kLabelWidth = 14;

Colour StateColour(absl::string_view state) {
  if (state == "running" || state == "serving") return Colour::kGreen;
  if (state == "failed" || state == "dead") return Colour::kRed;
  if (state.empty()) return Colour::kNone;
  return Colour::kYellow;  // joining, stopped, left, draining
}

Cell State(const std::string& state) { return {state.empty() ? "-" : state, StateColour(state)}; }

std::string Count(std::uint64_t count, absl::string_view one, absl::string_view many) {
  return absl::StrCat(HumanCount(count), " ", count == 1 ? one : many);
}

// "  label       text" and a line end.
std::string Line(absl::string_view label, absl::string_view text) {
  std::string padded(label);
  padded.resize(std::max(kLabelWidth, label.size()), ' ');
  return absl::StrCat("  ", padded, "  ", Paint(text, Colour::kNone, false), "\n");
}

std::string OrDash(const std::string& text) { return text.empty() ? "-" : text; }

std::string FailureLine(const std::string& failure, bool colours) {
  if (failure.empty()) return "";
  return absl::StrCat("  ", Paint(failure, Colour::kRed, colours), "\n");
}

std::string MemberTable(const google::protobuf::RepeatedPtrField<v1::Member>& members,
                        bool colours) {
  Table table({{"RANK", Align::kRight},
               {"LOCAL", Align::kRight},
               {"NODE", Align::kRight},
               {"HOST"},
               {"PID", Align::kRight},
               {"STATE"}});
  for (const v1::Member& member : members) {
    table.AddRow({absl::StrCat(member.rank()), absl::StrCat(member.local_rank()),
                  absl::StrCat(member.node_index()), OrDash(member.host()),
                  member.pid() == 0 ? "-" : absl::StrCat(member.pid()), State(member.state())});
  }
  return table.Render(colours, "  ");
}

std::string LearnedText(const v1::Communicator& communicator) {
  return absl::StrCat("epoch ", communicator.schedule_epoch(), ": ",
                      Count(communicator.learned_buckets(), "learned bucket", "learned buckets"),
                      ", ", HumanCount(communicator.learned_operations()),
                      " operations without a message, ",
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

std::string FastPathText(const v1::FastPath& path) {
  std::string text =
      path.open() ? absl::StrCat("up to ", HumanBytes(static_cast<double>(path.limit_bytes())))
                  : absl::StrCat("none: ", OrDash(path.why_not()));
  if (path.limit_bytes() == 0) return text;
  if (path.open() && path.flat_bytes() > 0 && path.flat_bytes() < path.limit_bytes()) {
    absl::StrAppend(&text, ", by a tree of nodes from ",
                    HumanBytes(static_cast<double>(path.flat_bytes())), " on");
  }
  absl::StrAppend(&text, "; ", Count(path.completed(), "operation", "operations"), ", ",
                  path.given_up(), " given up");
  return text;
}

std::string RenderCommunicator(const v1::Communicator& communicator, bool colours) {
  std::string out = absl::StrCat(
      Paint(absl::StrCat("job ", communicator.job_id(), ", ", communicator.name()), Colour::kBold,
            colours),
      " (communicator ", communicator.communicator(), ", generation ", communicator.generation(),
      "): ", Paint(communicator.state(), StateColour(communicator.state()), colours), "\n",
      FailureLine(communicator.failure(), colours));
  absl::StrAppend(
      &out,
      Line("members",
           absl::StrCat(
               Count(static_cast<std::uint64_t>(communicator.size()), "rank", "ranks"), " on ",
               Count(static_cast<std::uint64_t>(communicator.node_count()), "node", "nodes"),
               "; this is node ", communicator.node_index(), ", coordinator ",
               OrDash(communicator.coordinator()))),
      Line("backend", OrDash(communicator.backend())),
      Line("reduced",
           absl::StrCat(HumanBytes(static_cast<double>(communicator.bytes_reduced())), " in ",
                        Count(communicator.operations(), "operation", "operations"), ", ",
                        Count(communicator.tensors(), "tensor", "tensors"), " submitted")),
      Line("now", absl::StrCat(HumanRate(communicator.bytes_reduced_per_second()), ", ",
                               HumanNumber(communicator.operations_per_second()),
                               " operations/s, busy ", HumanShare(communicator.busy_share()))),
      Line("on the wire",
           absl::StrCat(HumanBytes(static_cast<double>(communicator.bytes_sent())), " sent, ",
                        HumanBytes(static_cast<double>(communicator.bytes_received())),
                        " received")),
      Line("negotiation",
           absl::StrCat(Count(communicator.negotiation_messages(), "message", "messages"),
                        " in all, ", HumanNumber(communicator.negotiation_messages_per_step()),
                        " in the last step")),
      Line("schedule", LearnedText(communicator)));
  if (!communicator.ordinary_memory().empty()) {
    absl::StrAppend(&out, Line("outside arena", communicator.ordinary_memory()));
  }
  if (communicator.has_fast_path()) {
    absl::StrAppend(&out, Line("fast path", FastPathText(communicator.fast_path())));
  }
  if (!communicator.ring().empty()) {
    absl::StrAppend(&out, Line("ring", RingText(communicator)));
  }
  if (!communicator.plan().fusion().empty()) {
    absl::StrAppend(&out, Line("link", DescribeLink(communicator.plan().link())));
  }

  Table links({{"TO NODE", Align::kRight},
               {"HOST"},
               {"TRANSPORTS"},
               {"CONNECTIONS", Align::kRight},
               {"FOR BULK", Align::kRight},
               {"WHY"}});
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
                 {"FROM"},
                 {"TO"}});
  for (const v1::Bucket& bucket : communicator.buckets()) {
    buckets.AddRow({absl::StrCat(bucket.channel()), HumanBytes(static_cast<double>(bucket.bytes())),
                    HumanCount(bucket.tensors()), HumanCount(bucket.occurrences()),
                    bucket.first_tensor(), bucket.last_tensor()});
  }
  for (const std::string& table : {MemberTable(communicator.members(), colours),
                                   links.Render(colours, "  "), buckets.Render(colours, "  ")}) {
    if (!table.empty()) absl::StrAppend(&out, "\n", table);
  }
  return out;
}

std::string AwaitedRanks(const v1::PendingTensor& tensor) {
  std::string ranks = absl::StrJoin(tensor.waits_for(), "; ");
  if (tensor.waits_for_left_out() > 0) {
    absl::StrAppend(&ranks, "; and ", HumanCount(tensor.waits_for_left_out()), " more");
  }
  return ranks;
}

std::string PendingLines(const v1::RankQueue& queue, bool colours) {
  std::string out;
  Table table(
      {{"TENSOR"}, {"BYTES", Align::kRight}, {"AGE", Align::kRight}, {"STAGE"}, {"WAITS FOR"}});
  int shown = 0;
  for (const v1::PendingTensor& tensor : queue.pending()) {
    if (shown++ == kPendingShown) break;
    table.AddRow({tensor.name(), HumanBytes(static_cast<double>(tensor.bytes())),
                  HumanDuration(tensor.age_seconds()), tensor.stage(),
                  Cell(AwaitedRanks(tensor), Colour::kYellow)});
  }
  absl::StrAppend(
      &out, "\n",
      Paint(absl::StrCat("job ", queue.job_id(), ", rank ", queue.rank()), Colour::kBold, colours),
      ": ", Count(queue.in_flight(), "tensor", "tensors"), " in flight\n",
      table.Render(colours, "  "));
  // The rest of those that are described, and those that are not.
  const auto described = static_cast<std::uint32_t>(queue.pending_size());
  const std::uint32_t all = std::max(queue.in_flight(), described + queue.pending_left_out());
  const std::uint32_t in_table = queue.pending_left_out() > 0
                                     ? std::min<std::uint32_t>(described, kPendingShown)
                                     : static_cast<std::uint32_t>(kPendingShown);
  if (all > in_table) {
    absl::StrAppend(&out, "  and ", HumanCount(all - in_table), " more",
                    described > kPendingShown ? " (--json tells more of them)" : "", "\n");
  }
  return out;
}

std::string NothingHere(absl::string_view what, std::uint32_t hidden_jobs) {
  return absl::StrCat("No ", what, hidden_jobs > 0 ? " of this user" : "", " on this node.\n");
}

std::string DescribeAdmitted(const v1::StatusReply& reply) {
  if (!reply.shows_users()) return "this user; operators see who else";
  return reply.allowed_users().empty()
             ? "its own user and root"
             : absl::StrCat("its own user, root, ", absl::StrJoin(reply.allowed_users(), ", "));
}

}  // namespace

std::string RenderStatus(const v1::StatusReply& reply, bool colours) {
  std::string out =
      absl::StrCat(Paint(absl::StrCat("ringd ", reply.version(), " on ", reply.node_name()),
                         Colour::kBold, colours),
                   ": ", Paint(reply.state(), StateColour(reply.state()), colours), " since ",
                   HumanDuration(reply.uptime_seconds()), "\n");
  absl::StrAppend(
      &out, Line("pid", absl::StrCat(reply.pid())), Line("socket", reply.socket()),
      Line("peers reach it", absl::StrCat("at ", OrDash(reply.peer_address()))),
      Line("backend", OrDash(reply.backend())),
      Line("configured by", reply.config_file().empty() ? "no file" : reply.config_file()),
      Line("admits", DescribeAdmitted(reply)),
      Line("sessions", absl::StrCat(reply.sessions(), " in ", Count(reply.jobs(), "job", "jobs"))),
      Line("arena", absl::StrCat(HumanBytes(static_cast<double>(reply.arena_bytes_per_session())),
                                 " a session")),
      Line("memory",
           absl::StrCat(HumanBytes(static_cast<double>(reply.resident_bytes())), " resident")));
  if (reply.sessions_ended_for_cause() + reply.attaches_refused() > 0) {
    absl::StrAppend(
        &out, Line("turned away",
                   absl::StrCat(Count(reply.attaches_refused(), "attach", "attaches"), " refused, ",
                                Count(reply.sessions_ended_for_cause(), "session", "sessions"),
                                " ended for breaking the protocol")));
  }
  return out;
}

std::string RenderJobs(const v1::JobsReply& reply, bool colours) {
  if (reply.jobs().empty()) return NothingHere("jobs", reply.hidden_jobs());
  Table table({{"JOB"},
               {"STATE"},
               {"RANKS", Align::kRight},
               {"HERE", Align::kRight},
               {"NODES", Align::kRight},
               {"WEIGHT", Align::kRight},
               {"UID", Align::kRight},
               {"AGE", Align::kRight},
               {"RENDEZVOUS"}});
  std::string details;
  for (const v1::Job& job : reply.jobs()) {
    table.AddRow({job.job_id(), State(job.state()), absl::StrCat(job.size()),
                  absl::StrCat(job.local_members_size()),
                  job.node_count() == 0 ? "-" : absl::StrCat(job.node_count()),
                  job.weight() == 0 ? "-" : absl::StrCat(job.weight()), absl::StrCat(job.uid()),
                  HumanDuration(job.age_seconds()), OrDash(job.rendezvous())});
    if (!job.failure().empty()) {
      absl::StrAppend(&details, "\n",
                      Paint(absl::StrCat("job ", job.job_id()), Colour::kBold, colours),
                      " failed:\n", FailureLine(job.failure(), colours));
    }
    if (!job.missing_ranks().empty()) {
      absl::StrAppend(&details, "\n",
                      Paint(absl::StrCat("job ", job.job_id()), Colour::kBold, colours),
                      " waits for ranks ", absl::StrJoin(job.missing_ranks(), ", "), "\n");
    }
  }
  return absl::StrCat(table.Render(colours), details);
}

std::string RenderCommunicators(const v1::CommunicatorsReply& reply, bool colours) {
  if (reply.communicators().empty()) return NothingHere("communicators", reply.hidden_jobs());
  std::vector<std::string> blocks;
  for (const v1::Communicator& communicator : reply.communicators()) {
    blocks.push_back(RenderCommunicator(communicator, colours));
  }
  return absl::StrJoin(blocks, "\n");
}

std::string RenderQueues(const v1::QueuesReply& reply, bool colours) {
  if (reply.queues().empty()) return NothingHere("ranks", reply.hidden_jobs());
  Table table({{"JOB"},
               {"COMM", Align::kRight},
               {"RANK", Align::kRight},
               {"PID", Align::kRight},
               {"STATE"},
               {"SUBMITTED", Align::kRight},
               {"DONE", Align::kRight},
               {"FAILED", Align::kRight},
               {"IN FLIGHT", Align::kRight}});
  std::string pending;
  for (const v1::RankQueue& queue : reply.queues()) {
    table.AddRow(
        {queue.job_id(), absl::StrCat(queue.communicator()), absl::StrCat(queue.rank()),
         queue.pid() == 0 ? "-" : absl::StrCat(queue.pid()), State(queue.state()),
         HumanCount(queue.submitted()), HumanCount(queue.completed()),
         Cell(HumanCount(queue.failed()), queue.failed() > 0 ? Colour::kRed : Colour::kNone),
         HumanCount(queue.in_flight())});
    if (!queue.pending().empty()) absl::StrAppend(&pending, PendingLines(queue, colours));
  }
  return absl::StrCat(table.Render(colours), pending);
}

std::string RenderHiddenJobs(std::uint32_t hidden_jobs) {
  if (hidden_jobs == 0) return "";
  return absl::StrCat(Count(hidden_jobs, "job", "jobs"), " of other users ",
                      hidden_jobs == 1 ? "is" : "are",
                      " not shown (ringd shows all to root and to its operators_group).\n");
}

}  // namespace ringd::cli
