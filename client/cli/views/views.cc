#include "client/cli/views/views.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "client/cli/views/human_units.h"
#include "client/cli/views/table.h"
#include "client/cli/views/view_parts.h"
#include "proto/base/text.h"

namespace ringd::cli {
namespace {

// Pending tensors shown of one rank; --json has all that ringd tells.
constexpr int kPendingShown = 8;

// All that ringd names where there is room, else the first of them.
std::string AwaitedRanks(const v1::PendingTensor& tensor, const Look& look) {
  const int all = tensor.waits_for_size();
  const int shown = look.width == 0 ? all : std::min(all, 1);
  std::string ranks;
  for (int i = 0; i < shown; ++i) {
    absl::StrAppend(&ranks, i > 0 ? "; " : "", tensor.waits_for(i));
  }
  const auto more = static_cast<std::uint32_t>(all - shown) + tensor.waits_for_left_out();
  if (more > 0) {
    absl::StrAppend(&ranks, look.width == 0 ? "; and " : ", ", HumanCount(more), " more");
  }
  return ranks;
}

// Of which communicator, where that is not the one of all ranks.
std::string OfPart(const v1::RankQueue& queue) {
  if (queue.communicator() == 0) return "";
  return absl::StrCat(", communicator '", queue.communicator_name(), "'");
}

std::string PendingLines(const v1::RankQueue& queue, const Look& look) {
  std::string out;
  Table table({{"TENSOR", Align::kLeft, Fit::kShortened},
               {"BYTES", Align::kRight},
               {"AGE", Align::kRight},
               {"STAGE", Align::kLeft, Fit::kOptional},
               {"WAITS FOR"}});
  int shown = 0;
  for (const v1::PendingTensor& tensor : queue.pending()) {
    if (shown++ == kPendingShown) break;
    table.AddRow({tensor.name(), HumanBytes(static_cast<double>(tensor.bytes())),
                  HumanDuration(tensor.age_seconds()), tensor.stage(),
                  Cell(AwaitedRanks(tensor, look), Colour::kYellow)});
  }
  absl::StrAppend(
      &out, "\n",
      Paint(absl::StrCat("job ", queue.job_id(), ", rank ", queue.rank(), OfPart(queue)),
            Colour::kBold, look.colours),
      ": ", Count(queue.in_flight(), "tensor", "tensors"), " in flight\n",
      table.Render(look, "  "));
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

// "group" or "groups" and their names.
std::string Groups(const google::protobuf::RepeatedPtrField<std::string>& names) {
  return absl::StrCat(names.size() == 1 ? "group " : "groups ", absl::StrJoin(names, ", "));
}

std::string DescribeAdmitted(const v1::StatusReply& reply) {
  if (!reply.shows_users()) return "this user; operators see who else";
  std::string text = reply.allowed_users().empty() && reply.allowed_groups().empty()
                         ? "its own user and root"
                         : "its own user, root";
  if (!reply.allowed_users().empty()) {
    absl::StrAppend(&text, ", ", absl::StrJoin(reply.allowed_users(), ", "));
  }
  if (!reply.allowed_groups().empty()) absl::StrAppend(&text, ", ", Groups(reply.allowed_groups()));
  return text;
}

// "serving since 3 min", "draining since 12 s, up since 3 min".
std::string StateText(const v1::StatusReply& reply, const Look& look) {
  const std::string state = Paint(reply.state(), StateColour(reply.state()), look.colours);
  const std::string up = HumanDuration(reply.uptime_seconds());
  if (reply.state() != "draining") return absl::StrCat(state, " since ", up);
  return absl::StrCat(state, " since ", HumanDuration(reply.draining_seconds()), ", up since ", up);
}

// What it means that it drains, and what ends it.
std::string DrainText(const v1::StatusReply& reply) {
  return absl::StrCat("new jobs are refused; ", reply.ending()
                                                    ? "ringd ends when its last trainer has gone"
                                                    : "ringctl drain --undo takes them again");
}

}  // namespace

std::string RenderStatus(const v1::StatusReply& reply, const Look& look) {
  std::string out =
      absl::StrCat(Paint(absl::StrCat("ringd ", reply.version(), " on ", reply.node_name()),
                         Colour::kBold, look.colours),
                   ": ", StateText(reply, look), "\n");
  const auto line = [&](absl::string_view label, const std::string& text) {
    absl::StrAppend(&out, Line(label, text, look));
  };
  if (reply.state() == "draining") line("drain", DrainText(reply));
  if (!reply.link_problems().empty()) {
    line("network", Paint(CleanLine(reply.link_problems()), Colour::kYellow, look.colours));
  }
  if (reply.engine_program_replaced()) {
    line("update",
         "ringd-engine has been replaced on disk; engines are the former one until ringd is "
         "started again");
  }
  line("pid", absl::StrCat(reply.pid()));
  line("build", OrDash(reply.build()));
  line("socket", reply.socket());
  line("peers reach it", absl::StrCat("at ", OrDash(reply.peer_address())));
  line("backend", OrDash(reply.backend()));
  line("configured by", reply.config_file().empty() ? "no file" : reply.config_file());
  line("admits", DescribeAdmitted(reply));
  if (!reply.operators_group().empty()) {
    line("operators", absl::StrCat("root, its own user, group ", reply.operators_group()));
  }
  line("sessions", absl::StrCat(reply.sessions(), " in ", Count(reply.jobs(), "job", "jobs")));
  line("arena", absl::StrCat(HumanBytes(static_cast<double>(reply.arena_bytes_per_session())),
                             " a session"));
  line("memory",
       absl::StrCat(HumanBytes(static_cast<double>(reply.resident_bytes())), " resident"));
  // An older ringd does not tell.
  if (!reply.gpus().empty()) line("GPUs", reply.gpus());
  if (reply.sessions_ended_for_cause() + reply.attaches_refused() > 0) {
    line("turned away",
         absl::StrCat(Count(reply.attaches_refused(), "attach", "attaches"), " refused, ",
                      Count(reply.sessions_ended_for_cause(), "session", "sessions"),
                      " ended for breaking the protocol"));
  }
  return out;
}

std::string RenderDrain(const v1::DrainReply& reply) {
  const std::string node = absl::StrCat("ringd on ", CleanLine(reply.node_name()));
  if (reply.state() != "draining") return absl::StrCat(node, " takes new jobs.\n");
  return absl::StrCat(node, " takes no new jobs; ",
                      reply.sessions() == 0
                          ? "no trainer is attached"
                          : absl::StrCat(Count(reply.sessions(), "trainer", "trainers"), " in ",
                                         Count(reply.jobs(), "job", "jobs"), " may go on"),
                      ".\n");
}

std::string RenderQueues(const v1::QueuesReply& reply, const Look& look) {
  if (reply.queues().empty()) return NothingHere("ranks", reply.hidden_jobs());
  Table table({{"JOB", Align::kLeft, Fit::kShortened},
               {"COMM", Align::kRight, Fit::kOptional},
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
         queue.pid() == 0 ? "-" : absl::StrCat(queue.pid()), StateCell(queue.state()),
         HumanCount(queue.submitted()), HumanCount(queue.completed()),
         Cell(HumanCount(queue.failed()), queue.failed() > 0 ? Colour::kRed : Colour::kNone),
         HumanCount(queue.in_flight())});
    if (!queue.pending().empty()) absl::StrAppend(&pending, PendingLines(queue, look));
  }
  for (const v1::StalledJob& stalled : reply.stalled_jobs()) {
    absl::StrAppend(&pending, StallParagraph(stalled.job_id(), stalled.stall(), look));
  }
  return absl::StrCat(table.Render(look), pending);
}

std::string RenderHiddenJobs(std::uint32_t hidden_jobs) {
  if (hidden_jobs == 0) return "";
  return absl::StrCat(Count(hidden_jobs, "job", "jobs"), " of other users ",
                      hidden_jobs == 1 ? "is" : "are",
                      " not shown (ringd shows all to root and to its operators_group).\n");
}

std::string RenderUnanswered(const google::protobuf::RepeatedPtrField<std::string>& unanswered) {
  std::string lines;
  for (const std::string& words : unanswered) {
    absl::StrAppend(&lines, "ringctl: warning: ", CleanLine(words), "\n");
  }
  return lines;
}

}  // namespace ringd::cli
