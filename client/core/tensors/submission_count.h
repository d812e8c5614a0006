// How often one tensor has been submitted: by this the ranks know their operations in the rank
// exchange.
#ifndef RINGD_CLIENT_CORE_TENSORS_SUBMISSION_COUNT_H_
#define RINGD_CLIENT_CORE_TENSORS_SUBMISSION_COUNT_H_

#include <atomic>
#include <cstdint>

namespace ringd::client {

// Counts each submission of a tensor once, whichever way it goes, and none that was refused: the
// k-th of a rank must be the k-th of all others, or their sums would mix steps.
//
// An operation that tries the rank exchange is counted before (TakeTurn), any other when it has
// been accepted (Accepted). If one is counted, given up, and then refused by ringd (a full arena,
// say), its count stands for the next submission, which goes to ringd (Refused).
//
// It also notices tensors with which the rank exchange only costs time, since some rank does not
// bring them there.
//
// Thread safety: any thread may call anything. Threads that submit one tensor at once have their
//   submissions counted in some order, as ringd takes them in some order.
class SubmissionCount {
 public:
  // After so many operations in a row that were given up ...
  static constexpr std::uint32_t kMostGivenUp = 3;
  // ... so many submissions don't try. By the count, so that all ranks leave out the same ones.
  static constexpr std::uint64_t kLeftOut = 1000;

  // Whether the next submission should try the rank exchange.
  bool ShouldTry() const noexcept {
    return refused_.load(std::memory_order_relaxed) == 0 &&
           next_.load(std::memory_order_relaxed) >= resume_at_.load(std::memory_order_relaxed);
  }
  // Counts a submission that will try it; the number of those before.
  std::uint64_t TakeTurn() noexcept { return next_.fetch_add(1, std::memory_order_relaxed); }
  // Counts one that has not tried it, and that has been accepted.
  void Accepted() noexcept;
  // The one that took a turn, and was given up, has been refused.
  void Refused() noexcept { refused_.fetch_add(1, std::memory_order_relaxed); }

  // How the operation that took `turn` ended.
  void Completed() noexcept { given_up_in_row_.store(0, std::memory_order_relaxed); }
  void GivenUp(std::uint64_t turn) noexcept;

 private:
  // Nothing else is read on the strength of these: relaxed.
  std::atomic<std::uint64_t> next_{0};
  std::atomic<std::uint64_t> resume_at_{0};
  std::atomic<std::uint32_t> refused_{0};
  std::atomic<std::uint32_t> given_up_in_row_{0};
};

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_TENSORS_SUBMISSION_COUNT_H_
