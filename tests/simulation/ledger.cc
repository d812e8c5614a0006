#include "tests/simulation/ledger.h"

namespace ringd::simulation {
namespace {

std::string Describe(const Submission& submission) {
  return "rank " + std::to_string(submission.rank) + ", tensor " + submission.name +
         ", occurrence " + std::to_string(submission.occurrence);
}

}  // namespace

void Ledger::OnSubmitted(const Submission& submission) {
  Occurrence& occurrence = Find(submission);
  if (occurrence.submitted++ == 0) {
    occurrence.meta = submission.meta;
  } else if (occurrence.meta != submission.meta) {
    occurrence.disagree = true;
  }
  occurrence.sum += submission.value;
}

void Ledger::OnSucceeded(Submission& submission, std::int64_t sum) {
  Occurrence& occurrence = Find(submission);
  if (occurrence.submitted != rank_count_) {
    Report(Describe(submission) + ": succeeded before all ranks had submitted it");
  } else if (occurrence.disagree) {
    Report(Describe(submission) + ": succeeded although the ranks disagree");
  } else if (sum != occurrence.sum) {
    Report(Describe(submission) + ": wrong sum");
  }
  End(submission, occurrence, "");
}

void Ledger::OnFailed(Submission& submission, const std::string& error, bool is_job_error) {
  Occurrence& occurrence = Find(submission);
  submission.error = error;
  if (is_job_error) {
    if (submission.ended) Report(Describe(submission) + ": ended twice");
    submission.ended = true;
    ++ended_;
    return;
  }
  if (!occurrence.disagree) Report(Describe(submission) + ": failed without cause: " + error);
  if (error.find("'" + submission.name + "'") == std::string::npos) {
    Report(Describe(submission) + ": the error does not name the tensor: " + error);
  }
  End(submission, occurrence, error);
}

void Ledger::End(Submission& submission, Occurrence& occurrence, const std::string& outcome) {
  if (submission.ended) Report(Describe(submission) + ": ended twice");
  submission.ended = true;
  ++ended_;
  if (occurrence.decided && occurrence.outcome != outcome) {
    Report(Describe(submission) + ": ended as '" + outcome + "', elsewhere as '" +
           occurrence.outcome + "'");
  }
  occurrence.decided = true;
  occurrence.outcome = outcome;
}

}  // namespace ringd::simulation
