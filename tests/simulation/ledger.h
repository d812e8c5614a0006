// What must have become of every submission: keeps the books and finds what does not add up.
#ifndef RINGD_TESTS_SIMULATION_LEDGER_H_
#define RINGD_TESTS_SIMULATION_LEDGER_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "daemon/schedule/protocol/tensor_meta.h"

namespace ringd::simulation {

// One rank's call for one tensor. Ranks submit each tensor several times; the n-th time at one rank
// belongs to the n-th time at every other.
struct Submission {
  std::string name;
  int occurrence = 0;
  int rank = 0;
  TensorMeta meta;
  bool by_order = false;   // then its name is its number's
  std::int64_t value = 0;  // stands for the tensor's content; 0 if it has none

  bool ended = false;
  std::string error;  // empty: success
};

// What it holds against a job:
//   - a submission that ends twice, or (Open) not at all;
//   - a success with a wrong sum, of tensors that differ, or before all ranks had submitted;
//   - an operation that ends well on one rank and with an error of its own on another, or with two
//     errors;
//   - a job that ends with two causes, or with one that is none of what has happened to it (Allow);
//     if the coordinator has gone amid its word, two, of which one is that;
//   - a node that has ended the job and where something still succeeds, or whose ranks are told
//     different things of one operation. Different nodes may be: the job's end may overtake a
//     result on one of them.
//
// Thread safety: none. Every finding is a text for a person; no finding, no fault.
class Ledger {
 public:
  // Ranks count through the nodes.
  explicit Ledger(const std::vector<int>& ranks_on_node);

  void OnSubmitted(const Submission& submission);
  // `sum` is what the rank was given as the result.
  void OnSucceeded(Submission& submission, std::int64_t sum);
  // The operation alone has failed.
  void OnFailed(Submission& submission, const std::string& error);
  // The whole job has ended.
  void OnJobFailed(Submission& submission, const std::string& cause);

  // Something has happened from which the job may end, with a cause that begins so.
  void Allow(const std::string& cause) { allowed_.push_back(cause); }
  // The coordinator has gone amid its word: nodes that did not hear it end with a cause that begins
  // so, as the others may with what they heard.
  void AllowWhereNoneWasHeard(const std::string& cause) { where_none_was_heard_ = cause; }

  void Report(std::string finding) { findings_.push_back(std::move(finding)); }
  const std::vector<std::string>& findings() const { return findings_; }
  std::uint64_t submitted() const { return submitted_; }
  std::uint64_t ended() const { return ended_; }
  // Of those that ended with an error of their own.
  std::uint64_t failed() const { return failed_; }
  // Submissions of the node's ranks that have not ended.
  std::uint64_t Open(int node) const { return open_[static_cast<std::size_t>(node)]; }
  // The cause with which the job has ended first; empty if it has not.
  const std::string& cause() const { return causes_.empty() ? none_ : causes_.front(); }
  // Some nodes have heard of a cause, others only that the coordinator is gone.
  bool is_divided() const { return causes_.size() > 1; }

 private:
  struct Occurrence {
    int submitted = 0;
    std::int64_t sum = 0;
    TensorMeta meta;
    bool disagree = false;
    bool decided = false;
    std::string outcome;                 // of the first rank that ended, the job's end apart
    std::map<int, std::string> at_node;  // of the node's first rank that ended
  };

  Occurrence& Find(const Submission& submission) {
    return occurrences_[{submission.name, submission.occurrence}];
  }
  int NodeOf(const Submission& submission) const {
    return node_of_rank_[static_cast<std::size_t>(submission.rank)];
  }
  bool MayDivide(const std::string& cause) const;
  void Decide(Submission& submission, Occurrence& occurrence, const std::string& outcome);
  void End(Submission& submission, Occurrence& occurrence, const std::string& outcome);

  std::vector<int> node_of_rank_;
  std::vector<std::uint64_t> open_;  // by node
  std::vector<bool> job_ended_;      // by node
  std::uint64_t submitted_ = 0;
  std::uint64_t ended_ = 0;
  std::uint64_t failed_ = 0;
  std::vector<std::string> allowed_;
  std::string where_none_was_heard_;  // empty: all must end with one cause
  std::vector<std::string>
      causes_;  // with which the job has ended, in the order in which they came
  std::vector<std::size_t> cause_at_;  // by node: which of them
  const std::string none_;
  std::map<std::pair<std::string, int>, Occurrence> occurrences_;
  std::vector<std::string> findings_;
};

}  // namespace ringd::simulation

#endif  // RINGD_TESTS_SIMULATION_LEDGER_H_
