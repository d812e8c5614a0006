// How many of a stream's messages have not been dealt with.
#ifndef RINGD_DAEMON_PEERS_MESSAGE_HOLDS_H_
#define RINGD_DAEMON_PEERS_MESSAGE_HOLDS_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

#include "daemon/peers/peer_network.h"
#include "proto/base/command_queue.h"

namespace ringd {

// Thread safety: any thread.
// Ownership: shared with the holds, which may outlive the stream and its network.
class MessageHolds : public std::enable_shared_from_this<MessageHolds> {
 public:
  // `reader` is woken when there may be room again.
  MessageHolds(std::size_t most_bytes, std::shared_ptr<CommandQueue> reader)
      : most_bytes_(most_bytes), reader_(std::move(reader)) {}

  bool full() const noexcept { return bytes_.load(std::memory_order_acquire) >= most_bytes_; }
  MessageHold Hold(std::size_t message_bytes) {
    return std::make_shared<const Held>(shared_from_this(), message_bytes + kBytesBeside);
  }

 private:
  // A message costs something even if it is empty.
  static constexpr std::size_t kBytesBeside = 256;

  class Held {
   public:
    Held(std::shared_ptr<MessageHolds> holds, std::size_t bytes)
        : holds_(std::move(holds)), bytes_(bytes) {
      holds_->bytes_.fetch_add(bytes_, std::memory_order_relaxed);
    }
    ~Held() {
      // Release: pairs with full(), so that a reader that goes on finds the messages dealt with.
      const std::size_t before = holds_->bytes_.fetch_sub(bytes_, std::memory_order_acq_rel);
      const std::size_t most = holds_->most_bytes_;
      if (before >= most && before - bytes_ < most) holds_->reader_->Post([] {});
    }
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;

   private:
    const std::shared_ptr<MessageHolds> holds_;
    const std::size_t bytes_;
  };

  const std::size_t most_bytes_;
  const std::shared_ptr<CommandQueue> reader_;
  std::atomic<std::size_t> bytes_{0};
};

}  // namespace ringd

#endif  // RINGD_DAEMON_PEERS_MESSAGE_HOLDS_H_
