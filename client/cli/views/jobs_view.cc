// `ringctl jobs`.
#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/cli/views/human_units.h"
#include "client/cli/views/table.h"
#include "client/cli/views/view_parts.h"
#include "client/cli/views/views.h"

namespace ringd::cli {
namespace {

bool HasEnded(const v1::Job& job) { return job.ended_unix_seconds() > 0; }

std::string MissingText(const v1::Job& job) {
  const bool one = job.missing_ranks_size() == 1 && job.missing_left_out() == 0;
  return absl::StrCat(one ? "rank " : "ranks ", Ranges(job.missing_ranks()),
                      job.missing_left_out() > 0
                          ? absl::StrCat(" and ", HumanCount(job.missing_left_out()), " more")
                          : "");
}

// " (Nov 24 05:30:12 to Nov 24 05:31:02; here: rank 0, pid 4711; rank 1, pid 4712)".
std::string WhenAndWho(const v1::Job& job) {
  constexpr int kRanksShown = 4;
  std::string text = absl::StrCat(" (", LocalTime(job.started_unix_seconds()), " to ",
                                  LocalTime(job.ended_unix_seconds()));
  const int shown = std::min(job.local_members_size(), kRanksShown);
  for (int i = 0; i < shown; ++i) {
    const v1::Member& member = job.local_members(i);
    absl::StrAppend(&text, i == 0 ? "; here: " : "; ", "rank ", member.rank(), ", pid ",
                    member.pid());
  }
  const auto more =
      static_cast<std::uint32_t>(job.local_members_size() - shown) + job.local_members_left_out();
  if (more > 0) absl::StrAppend(&text, "; and ", HumanCount(more), " more");
  return absl::StrCat(text, ")");
}

// What the table has no room for.
std::string Details(const v1::Job& job, const Look& look) {
  std::string out;
  if (!job.failure().empty()) {
    absl::StrAppend(&out, "\n", JobTitle(job.job_id(), look), " failed",
                    HasEnded(job) ? WhenAndWho(job) : "", ":\n", FailureLine(job.failure(), look));
  }
  if (job.has_stall()) absl::StrAppend(&out, StallParagraph(job.job_id(), job.stall(), look));
  // Of one that has ended it says no more than its failure.
  if (HasEnded(job)) return out;
  if (!job.missing_ranks().empty()) {
    absl::StrAppend(&out, "\n", JobTitle(job.job_id(), look), " waits for ", MissingText(job),
                    "\n");
  } else if (!job.waits_for().empty()) {
    absl::StrAppend(&out, "\n", JobTitle(job.job_id(), look), " waits for ",
                    Paint(job.waits_for(), Colour::kNone, false), "\n");
  }
  return out;
}

// An older ringd does not tell, and a job that has ended has none.
std::string OfEngine(const v1::Job& job, const std::string& text) {
  return job.has_engine() ? text : "-";
}

}  // namespace

std::string RenderJobs(const v1::JobsReply& reply, bool ended, const Look& look) {
  if (reply.jobs().empty()) return NothingHere("jobs", reply.hidden_jobs());
  Table table({{"JOB", Align::kLeft, Fit::kShortened},
               {"STATE"},
               {"RANKS", Align::kRight},
               {"HERE", Align::kRight},
               {"NODES", Align::kRight},
               {"WEIGHT", Align::kRight, ended ? Fit::kOptional : Fit::kWhole},
               {"UID", Align::kRight},
               {"BEGAN", Align::kLeft, ended ? Fit::kWhole : Fit::kOptional},
               {ended ? "LASTS" : "AGE", Align::kRight},
               {"RENDEZVOUS", Align::kLeft, Fit::kOptional},
               {"ENGINE", Align::kRight, Fit::kOptional},
               {"MEMORY", Align::kRight, Fit::kOptional},
               {"OWN", Align::kRight, Fit::kOptional},
               {"CPU", Align::kRight, Fit::kOptional}});
  std::string details;
  for (const v1::Job& job : reply.jobs()) {
    const v1::EngineUse& engine = job.engine();
    const auto here =
        static_cast<std::uint32_t>(job.local_members_size()) + job.local_members_left_out();
    table.AddRow({job.job_id(), StateCell(job.state()), absl::StrCat(job.size()),
                  absl::StrCat(here), job.node_count() == 0 ? "-" : absl::StrCat(job.node_count()),
                  job.weight() == 0 ? "-" : absl::StrCat(job.weight()), absl::StrCat(job.uid()),
                  LocalTime(job.started_unix_seconds()), HumanDuration(job.age_seconds()),
                  OrDash(job.rendezvous()), OfEngine(job, absl::StrCat(engine.pid())),
                  OfEngine(job, HumanBytes(static_cast<double>(engine.resident_bytes()))),
                  OfEngine(job, HumanBytes(static_cast<double>(engine.own_bytes()))),
                  OfEngine(job, HumanDuration(engine.processor_seconds()))});
    absl::StrAppend(&details, Details(job, look));
  }
  return absl::StrCat(table.Render(look), details);
}

}  // namespace ringd::cli
