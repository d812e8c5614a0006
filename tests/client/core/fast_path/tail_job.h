// A rank that holds the last tensors of its steps, as part of one test, with a ringd that only takes note.
#ifndef RINGD_TESTS_CLIENT_CORE_FAST_PATH_TAIL_JOB_H_
#define RINGD_TESTS_CLIENT_CORE_FAST_PATH_TAIL_JOB_H_

#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/core/fast_path/tail_operations.h"
#include "proto/base/mutex.h"
#include "tests/client/core/fast_path/fast_path_job.h"

namespace ringd::client {

// What a rank has handed to ringd.
struct Submitted {
  std::string name;
  WhenFull when_full = WhenFull::kWait;
  bool counted = false;
};

// A rank that learns its tails, with a ringd that only takes note.
class TailRank {
 public:
  explicit TailRank(FastPathRank& rank)
      : rank_(rank),
        large_(rank.Register(
            Reduction("large", DataType::kUint8, ReduceOp::kSum, StepTail::kLeastBefore))),
        operations_(*rank.operations,
                    [this](Registration& tensor, const void* /*source*/, void* /*destination*/,
                           WhenFull when_full, bool counted, ringd_operation* operation) {
                      return OnSubmit(tensor, when_full, counted, operation);
                    }) {}

  // A tensor at `data`, one among those with which a step ends.
  void Add(const TensorDescription& description, void* data) {
    tensors_.push_back({&rank_.Register(description), data});
  }
  // What is submitted before the tail. True if it is held, which it must not be.
  bool SubmitLarge() {
    ringd_operation ticket = 0;
    return operations_.TryHold(large_, nullptr, nullptr, &ticket);
  }
  // 0: it is not held.
  ringd_operation Hold(std::size_t tensor) {
    ringd_operation ticket = 0;
    const auto& [registration, data] = tensors_[tensor];
    if (operations_.TryHold(*registration, data, data, &ticket)) return ticket;
    registration->submissions.Accepted();
    return 0;
  }
  // The submissions of a step; the tickets, 0 for those that are not held.
  std::vector<ringd_operation> HoldAll() {
    if (SubmitLarge()) return {};
    std::vector<ringd_operation> tickets;
    for (std::size_t i = 0; i < tensors_.size(); ++i) tickets.push_back(Hold(i));
    return tickets;
  }
  void Wait() { operations_.BeginWait(true, nullptr); }
  // So that the next step's tail is held.
  void Learn() {
    for (int i = 0; i < StepTail::kAlike; ++i) {
      for (const ringd_operation ticket : HoldAll()) learned_early_ |= ticket != 0;
      Wait();
    }
  }
  // As if the others had come, so that it goes on trying.
  void Forgive() {
    for (const Tensor& tensor : tensors_) tensor.registration->submissions.Completed();
  }
  bool learned_early() const { return learned_early_; }

  std::vector<Submitted> submitted() {
    MutexLock lock(mutex_);
    return submitted_;
  }
  std::vector<std::string> submitted_names() {
    std::vector<std::string> names;
    for (const Submitted& entry : submitted()) names.push_back(entry.name);
    return names;
  }
  // Of a submission that comes, if not OK.
  void RefuseWith(absl::Status status, std::size_t after = 0) {
    MutexLock lock(mutex_);
    refusal_ = std::move(status);
    accepts_ = after;
  }

  TailOperations& operations() { return operations_; }
  FastPathMember& member() { return rank_.member; }
  SessionState& state() { return rank_.state; }

 private:
  struct Tensor {
    Registration* registration;
    void* data;
  };

  absl::Status OnSubmit(Registration& tensor, WhenFull when_full, bool counted,
                        ringd_operation* operation) {
    MutexLock lock(mutex_);
    if (!refusal_.ok() && accepts_ == 0) {
      if (counted) tensor.submissions.Refused();
      return refusal_;
    }
    if (!refusal_.ok()) --accepts_;
    if (!counted) tensor.submissions.AcceptedInstead();
    submitted_.push_back({tensor.description.name, when_full, counted});
    *operation = submitted_.size();
    return absl::OkStatus();
  }

  FastPathRank& rank_;
  Registration& large_;
  std::vector<Tensor> tensors_;
  bool learned_early_ = false;
  Mutex mutex_;
  std::vector<Submitted> submitted_ ABSL_GUARDED_BY(mutex_);
  absl::Status refusal_ ABSL_GUARDED_BY(mutex_);
  std::size_t accepts_ ABSL_GUARDED_BY(mutex_) = 0;
  TailOperations operations_;  // last: it submits to the others
};

struct TailJob {
  // `with_ringds`: each node's drives now and then. Without, who waits for the root's word may wait for ever.
  explicit TailJob(std::uint32_t node_count, std::uint32_t member_count = 1,
                   bool with_ringds = true)
      : job(node_count, member_count) {
    for (std::size_t rank = 0; rank < job.size(); ++rank) {
      ranks.push_back(std::make_unique<TailRank>(job[rank]));
    }
    for (std::uint32_t node = 0; with_ringds && node < node_count; ++node) {
      ringds.push_back(std::make_unique<DrivingRingd>(job.links[node]));
    }
  }
  TailRank& operator[](std::size_t rank) { return *ranks[rank]; }
  std::size_t size() const { return ranks.size(); }

  FastPathJob job;
  std::vector<std::unique_ptr<TailRank>> ranks;
  std::vector<std::unique_ptr<DrivingRingd>> ringds;
};

// There must be such a ticket, or none: not an error.
inline ringd_operation FoundBy(TailRank& rank, ringd_operation ticket) {
  const absl::StatusOr<ringd_operation> found = rank.operations().Find(ticket);
  REQUIRE(found.ok());
  return *found;
}

}  // namespace ringd::client

#endif  // RINGD_TESTS_CLIENT_CORE_FAST_PATH_TAIL_JOB_H_
