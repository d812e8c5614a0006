#include "client/cli/run_summary.h"

#include <algorithm>
#include <csignal>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/exit_code.h"

namespace ringd::cli {
namespace {

std::string Ranks(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", absl::StrJoin(ranks, ", "));
}

// What became of the ranks other than `except`, those that ended alike in one line.
std::string Others(const RunOutcome& outcome, const RankEnd* except) {
  std::map<std::string, std::vector<int>> by_end;
  for (const RankEnd& end : outcome.ends) {
    if (&end == except || end.end.ok()) continue;
    const bool ended_by_us = end.signalled_by_us && end.end.signal != 0;
    by_end[ended_by_us ? absl::StrCat("ended by ringctl with ", SignalName(end.end.signal))
                       : absl::StrCat("afterwards ", Describe(end.end))]
        .push_back(end.rank);
  }
  std::string text;
  for (const auto& [how, ranks] : by_end) {
    absl::StrAppend(&text, "ringctl: ", Ranks(ranks), " ", how, "\n");
  }
  return text;
}

}  // namespace

std::string SummarizeRun(const RunOutcome& outcome, double time_limit_seconds) {
  const RankEnd* first =
      outcome.first_failure.has_value() ? &outcome.ends[*outcome.first_failure] : nullptr;
  std::string text;
  switch (outcome.cause) {
    case RunOutcome::Cause::kAllDone:
      return "";
    case RunOutcome::Cause::kRankFailed:
      break;
    case RunOutcome::Cause::kTimeLimit:
      absl::StrAppend(&text, "ringctl: the time limit of ", time_limit_seconds, " s has passed\n");
      break;
    case RunOutcome::Cause::kSignal:
      absl::StrAppend(&text, "ringctl: ended by ", SignalName(outcome.signal), "\n");
      break;
    case RunOutcome::Cause::kOutputGone:
      absl::StrAppend(&text, "ringctl: nobody reads the output any more\n");
      break;
  }
  if (first != nullptr) {
    absl::StrAppend(&text, "ringctl: rank ", first->rank, " (pid ", first->pid, ") ",
                    Describe(first->end), "\n");
  }
  return absl::StrCat(text, Others(outcome, first));
}

int ExitCodeOf(const RunOutcome& outcome) {
  switch (outcome.cause) {
    case RunOutcome::Cause::kAllDone:
      return kDone;
    case RunOutcome::Cause::kSignal:
      return kSignalBase + outcome.signal;
    case RunOutcome::Cause::kOutputGone:
      return kSignalBase + SIGPIPE;
    case RunOutcome::Cause::kRankFailed:
    case RunOutcome::Cause::kTimeLimit:
      break;
  }
  return kFailed;
}

}  // namespace ringd::cli
