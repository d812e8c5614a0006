// What the control streams of one user's jobs may hold of ringd's memory.
#ifndef RINGD_DAEMON_PEERS_PEER_BUDGET_H_
#define RINGD_DAEMON_PEERS_PEER_BUDGET_H_

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <map>
#include <memory>

namespace ringd {

// Counts bytes of both directions: messages that wait to be sent, and those that have come in part.
//
// Thread safety: any thread.
class PeerBudget {
 public:
  explicit PeerBudget(std::size_t limit) noexcept : limit_(limit) {}

  // False: that would be too much, and nothing has been taken.
  [[nodiscard]] bool Take(std::size_t bytes) noexcept {
    // Relaxed: a count that orders nothing else.
    std::size_t used = used_.load(std::memory_order_relaxed);
    do {
      if (bytes > limit_ || used > limit_ - bytes) return false;
    } while (!used_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
    return true;
  }
  void Give(std::size_t bytes) noexcept { used_.fetch_sub(bytes, std::memory_order_relaxed); }
  std::size_t used() const noexcept { return used_.load(std::memory_order_relaxed); }

 private:
  const std::size_t limit_;
  std::atomic<std::size_t> used_{0};
};

// One for each user who has streams.
//
// Thread safety: one thread at a time.
class PeerBudgets {
 public:
  explicit PeerBudgets(std::size_t limit_of_each) noexcept : limit_(limit_of_each) {}

  std::shared_ptr<PeerBudget> Of(uid_t user) {
    std::erase_if(budgets_, [](const auto& entry) { return entry.second.expired(); });
    std::weak_ptr<PeerBudget>& place = budgets_[user];
    std::shared_ptr<PeerBudget> budget = place.lock();
    if (budget == nullptr) place = budget = std::make_shared<PeerBudget>(limit_);
    return budget;
  }

 private:
  const std::size_t limit_;
  std::map<uid_t, std::weak_ptr<PeerBudget>> budgets_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_PEERS_PEER_BUDGET_H_
