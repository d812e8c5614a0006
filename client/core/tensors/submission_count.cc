#include "client/core/tensors/submission_count.h"

namespace ringd::client {

void SubmissionCount::Accepted() noexcept {
  std::uint32_t refused = refused_.load(std::memory_order_relaxed);
  while (refused > 0) {
    if (refused_.compare_exchange_weak(refused, refused - 1, std::memory_order_relaxed)) return;
  }
  next_.fetch_add(1, std::memory_order_relaxed);
}

void SubmissionCount::GivenUp(std::uint64_t turn) noexcept {
  if (given_up_in_row_.fetch_add(1, std::memory_order_relaxed) + 1 < kMostGivenUp) return;
  given_up_in_row_.store(0, std::memory_order_relaxed);
  resume_at_.store(turn + 1 + kLeftOut, std::memory_order_relaxed);
}

}  // namespace ringd::client
