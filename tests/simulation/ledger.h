// What must have become of every submission: keeps the books and finds what does not add up.
#ifndef RINGD_TESTS_SIMULATION_LEDGER_H_
#define RINGD_TESTS_SIMULATION_LEDGER_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "daemon/schedule/tensor_meta.h"

namespace ringd::simulation {

// One rank's call for one tensor. Ranks submit each tensor several times; the n-th time at one rank
// belongs to the n-th time at every other.
struct Submission {
  std::string name;
  int occurrence = 0;
  int rank = 0;
  TensorMeta meta;
  std::int64_t value = 0;  // stands for the tensor's content

  bool ended = false;
  std::string error;  // empty: success
};

// Thread safety: none. Every finding is a text for a person; no finding, no fault.
class Ledger {
 public:
  explicit Ledger(int rank_count) : rank_count_(rank_count) {}

  void OnSubmitted(const Submission& submission);
  // `sum` is what the rank was given as the result.
  void OnSucceeded(Submission& submission, std::int64_t sum);
  // `is_job_error`: the whole job failed, so that other ranks may have had success.
  void OnFailed(Submission& submission, const std::string& error, bool is_job_error);

  void Report(std::string finding) { findings_.push_back(std::move(finding)); }
  const std::vector<std::string>& findings() const { return findings_; }
  std::uint64_t ended() const { return ended_; }

 private:
  struct Occurrence {
    int submitted = 0;
    std::int64_t sum = 0;
    TensorMeta meta;
    bool disagree = false;
    bool decided = false;
    std::string outcome;  // of the first rank that ended
  };

  Occurrence& Find(const Submission& submission) {
    return occurrences_[{submission.name, submission.occurrence}];
  }
  void End(Submission& submission, Occurrence& occurrence, const std::string& outcome);

  const int rank_count_;
  std::uint64_t ended_ = 0;
  std::map<std::pair<std::string, int>, Occurrence> occurrences_;
  std::vector<std::string> findings_;
};

}  // namespace ringd::simulation

#endif  // RINGD_TESTS_SIMULATION_LEDGER_H_
