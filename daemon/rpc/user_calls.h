// What the calls of one user may take of ringd.
#ifndef RINGD_DAEMON_RPC_USER_CALLS_H_
#define RINGD_DAEMON_RPC_USER_CALLS_H_

#include <atomic>
#include <cstddef>
#include <memory>

namespace ringd {

// A client that does not heed gRPC's bound on a connection's calls, or does not read its replies,
// comes up against these.
//
// Thread safety: all methods from any thread.
// Ownership: shared; places keep what they count in.
class UserCalls {
 public:
  // Given back when the last copy goes; null: there is none.
  using Place = std::shared_ptr<const void>;

  struct Limits {
    // At once: until the engine has answered and gRPC is done with it.
    std::size_t calls = 4096;
    // Of replies that callers have not taken yet.
    std::size_t reply_bytes = std::size_t{256} << 20;
  };

  explicit UserCalls(const Limits& limits) : limits_(limits) {}

  const Limits& limits() const noexcept { return limits_; }

  Place TakeCall() { return Take(calls_, 1, limits_.calls); }
  // For a reply. One reply alone may be as long as it likes: gRPC's have a bound.
  Place TakeReply(std::size_t bytes) { return Take(reply_bytes_, bytes, limits_.reply_bytes); }

 private:
  using Count = std::shared_ptr<std::atomic<std::size_t>>;

  static Place Take(const Count& count, std::size_t amount, std::size_t most) {
    // Relaxed: numbers, by which nothing else is published.
    const std::size_t before = count->fetch_add(amount, std::memory_order_relaxed);
    if (amount == 0 || before == 0 || before + amount <= most) {
      return Place(count.get(), [count, amount](const void*) {
        count->fetch_sub(amount, std::memory_order_relaxed);
      });
    }
    count->fetch_sub(amount, std::memory_order_relaxed);
    return nullptr;
  }

  const Limits limits_;
  const Count calls_ = std::make_shared<std::atomic<std::size_t>>(0);
  const Count reply_bytes_ = std::make_shared<std::atomic<std::size_t>>(0);
};

}  // namespace ringd

#endif  // RINGD_DAEMON_RPC_USER_CALLS_H_
