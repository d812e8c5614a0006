#include "client/cli/run/run_summary.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/substitute.h"
#include "client/cli/query/exit_code.h"
#include "proto/base/errno_status.h"

namespace ringd::cli {
namespace {

std::string Ranks(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", absl::StrJoin(ranks, ", "));
}

// How a rank other than the first ended, with a place for the ranks that ended alike.
std::string Pattern(const RankEnd& end) {
  if (end.end.signal == 0) return absl::StrCat("then $0 exited with code ", end.end.exit_code);
  const std::string name = SignalName(end.end.signal);
  return end.signalled_by_us ? absl::StrCat("then ringctl ended $0 with ", name)
                             : absl::StrCat("then ", name, " killed $0");
}

// What became of the ranks other than `except`, those that ended alike in one line.
std::string Others(const RunOutcome& outcome, const RankEnd* except) {
  std::map<std::string, std::vector<int>> by_end;
  for (const RankEnd& end : outcome.ends) {
    if (&end != except && !end.end.ok()) by_end[Pattern(end)].push_back(end.rank);
  }
  std::string text;
  for (const auto& [pattern, ranks] : by_end) {
    absl::StrAppend(&text, "ringctl: ", absl::Substitute(pattern, Ranks(ranks)), "\n");
  }
  return text;
}

// Of an output that is gone: otherwise it could not be written, to a full disk for instance.
bool ReaderHasGone(const RunOutcome& outcome) { return outcome.output_error == EPIPE; }

std::string WhyOutputGone(const RunOutcome& outcome) {
  if (ReaderHasGone(outcome)) return "nobody reads the output any more";
  return std::string(ErrnoStatus(outcome.output_error, "the output can't be written").message());
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
      absl::StrAppend(&text, "ringctl: ", WhyOutputGone(outcome), "\n");
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
      return ReaderHasGone(outcome) ? kSignalBase + SIGPIPE : kFailed;
    case RunOutcome::Cause::kRankFailed:
    case RunOutcome::Cause::kTimeLimit:
      break;
  }
  return kFailed;
}

}  // namespace ringd::cli
