#include "client/cli/run/run_summary.h"

#include <catch2/catch.hpp>
#include <cerrno>
#include <csignal>

#include "client/cli/query/exit_code.h"

namespace ringd::cli {

TEST_CASE("SummarizeRun: all done says nothing") {
  RunOutcome outcome;
  outcome.ends = {{0, 10, {0, 0}, false}};
  CHECK(SummarizeRun(outcome, 0).empty());
  CHECK(ExitCodeOf(outcome) == kDone);
}

TEST_CASE("SummarizeRun: the first failure first, then the others by how they ended") {
  RunOutcome outcome;
  outcome.cause = RunOutcome::Cause::kRankFailed;
  outcome.ends = {{2, 123, {0, SIGKILL}, false},
                  {3, 124, {1, 0}, false},
                  {0, 121, {1, 0}, false},
                  {4, 125, {0, 0}, false},
                  {1, 122, {0, SIGTERM}, true}};
  outcome.first_failure = 0;
  CHECK(SummarizeRun(outcome, 0) ==
        "ringctl: rank 2 (pid 123) was killed by SIGKILL\n"
        "ringctl: then ranks 0, 3 exited with code 1\n"
        "ringctl: then ringctl ended rank 1 with SIGTERM\n");
  CHECK(ExitCodeOf(outcome) == kFailed);
}

TEST_CASE("SummarizeRun: a time limit and a signal are causes of their own") {
  RunOutcome outcome;
  outcome.cause = RunOutcome::Cause::kTimeLimit;
  outcome.ends = {{0, 10, {0, SIGTERM}, true}};
  CHECK(SummarizeRun(outcome, 2.5) ==
        "ringctl: the time limit of 2.5 s has passed\n"
        "ringctl: then ringctl ended rank 0 with SIGTERM\n");
  CHECK(ExitCodeOf(outcome) == kFailed);
  outcome.cause = RunOutcome::Cause::kSignal;
  outcome.signal = SIGINT;
  outcome.ends.clear();
  CHECK(SummarizeRun(outcome, 0) == "ringctl: ended by SIGINT\n");
  CHECK(ExitCodeOf(outcome) == 130);
}

TEST_CASE("SummarizeRun: an output that can't be written is no reader that has gone") {
  RunOutcome outcome;
  outcome.cause = RunOutcome::Cause::kOutputGone;
  outcome.output_error = EPIPE;
  CHECK(SummarizeRun(outcome, 0) == "ringctl: nobody reads the output any more\n");
  CHECK(ExitCodeOf(outcome) == 128 + SIGPIPE);
  outcome.output_error = ENOSPC;
  CHECK(SummarizeRun(outcome, 0) ==
        "ringctl: the output can't be written: No space left on device\n");
  CHECK(ExitCodeOf(outcome) == kFailed);
}

}  // namespace ringd::cli
