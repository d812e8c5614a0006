#include "tests/simulation/ledger.h"

#include <algorithm>

namespace ringd::simulation {
namespace {

std::string Describe(const Submission& submission) {
  return "rank " + std::to_string(submission.rank) + ", tensor " + submission.name +
         ", occurrence " + std::to_string(submission.occurrence);
}

std::string Quote(const std::string& outcome) {
  return outcome.empty() ? "success" : "'" + outcome + "'";
}

}  // namespace

Ledger::Ledger(const std::vector<int>& ranks_on_node)
    : open_(ranks_on_node.size(), 0),
      job_ended_(ranks_on_node.size(), false),
      cause_at_(ranks_on_node.size(), 0) {
  for (std::size_t node = 0; node < ranks_on_node.size(); ++node) {
    node_of_rank_.insert(node_of_rank_.end(), static_cast<std::size_t>(ranks_on_node[node]),
                         static_cast<int>(node));
  }
}

void Ledger::OnSubmitted(const Submission& submission) {
  Occurrence& occurrence = Find(submission);
  if (occurrence.submitted++ == 0) {
    occurrence.meta = submission.meta;
  } else if (occurrence.meta != submission.meta) {
    occurrence.disagree = true;
  }
  occurrence.sum += submission.value;
  ++submitted_;
  ++open_[static_cast<std::size_t>(NodeOf(submission))];
}

void Ledger::OnSucceeded(Submission& submission, std::int64_t sum) {
  Occurrence& occurrence = Find(submission);
  if (occurrence.submitted != static_cast<int>(node_of_rank_.size())) {
    Report(Describe(submission) + ": succeeded before all ranks had submitted it");
  } else if (occurrence.disagree) {
    Report(Describe(submission) + ": succeeded although the ranks disagree");
  } else if (sum != occurrence.sum) {
    Report(Describe(submission) + ": wrong sum");
  }
  Decide(submission, occurrence, "");
}

void Ledger::OnFailed(Submission& submission, const std::string& error) {
  Occurrence& occurrence = Find(submission);
  if (!occurrence.disagree) Report(Describe(submission) + ": failed without cause: " + error);
  ++failed_;
  const bool is_named = submission.by_order
                            ? error.starts_with(submission.name + " of communicator '")
                            : error.find("'" + submission.name + "'") != std::string::npos;
  if (!is_named) {
    Report(Describe(submission) + ": the error does not name the tensor: " + error);
  }
  Decide(submission, occurrence, error);
}

void Ledger::OnJobFailed(Submission& submission, const std::string& cause) {
  const auto known = std::find(causes_.begin(), causes_.end(), cause);
  const auto node = static_cast<std::size_t>(NodeOf(submission));
  const auto is = static_cast<std::size_t>(known - causes_.begin());
  if (known == causes_.end()) {
    const bool is_allowed =
        std::any_of(allowed_.begin(), allowed_.end(),
                    [&](const std::string& allowed) { return cause.starts_with(allowed); });
    if (!is_allowed) Report("the job ended with what has not happened: " + Quote(cause));
    if (!causes_.empty() && !MayDivide(cause)) {
      Report(Describe(submission) + ": the job ended with " + Quote(cause) + ", elsewhere with " +
             Quote(causes_.front()));
    }
    causes_.push_back(cause);
  }
  if (job_ended_[node] && cause_at_[node] != is) {
    Report(Describe(submission) + ": the job ended with " + Quote(cause) +
           ", for another rank of its node with " + Quote(causes_[cause_at_[node]]));
  }
  cause_at_[node] = is;
  job_ended_[node] = true;
  End(submission, Find(submission), cause);
}

bool Ledger::MayDivide(const std::string& cause) const {
  if (where_none_was_heard_.empty() || causes_.size() > 1) return false;
  return cause.starts_with(where_none_was_heard_) ||
         causes_.front().starts_with(where_none_was_heard_);
}

void Ledger::Decide(Submission& submission, Occurrence& occurrence, const std::string& outcome) {
  if (job_ended_[static_cast<std::size_t>(NodeOf(submission))]) {
    Report(Describe(submission) + ": ended with " + Quote(outcome) + " after the job's end");
  }
  if (occurrence.decided && occurrence.outcome != outcome) {
    Report(Describe(submission) + ": ended with " + Quote(outcome) + ", elsewhere with " +
           Quote(occurrence.outcome));
  }
  occurrence.decided = true;
  occurrence.outcome = outcome;
  End(submission, occurrence, outcome);
}

void Ledger::End(Submission& submission, Occurrence& occurrence, const std::string& outcome) {
  if (submission.ended) {
    Report(Describe(submission) + ": ended twice");
    return;
  }
  submission.ended = true;
  submission.error = outcome;
  ++ended_;
  --open_[static_cast<std::size_t>(NodeOf(submission))];
  const auto [first, is_first] = occurrence.at_node.try_emplace(NodeOf(submission), outcome);
  if (!is_first && first->second != outcome) {
    Report(Describe(submission) + ": ended with " + Quote(outcome) + ", for another rank of its " +
           "node with " + Quote(first->second));
  }
}

}  // namespace ringd::simulation
