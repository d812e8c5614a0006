// What waits to be written to one stream.
#ifndef RINGD_DAEMON_PEERS_OUTGOING_QUEUE_H_
#define RINGD_DAEMON_PEERS_OUTGOING_QUEUE_H_

#include <cstddef>
#include <deque>
#include <utility>

namespace ringd {

// First in, first out, bounded by the messages' serialised size. Addresses of queued messages are
// stable until they are popped.
//
// Thread safety: none; the stream's mutex guards it.
template <typename Message>
class OutgoingQueue {
 public:
  explicit OutgoingQueue(std::size_t max_bytes) : max_bytes_(max_bytes) {}

  bool empty() const noexcept { return entries_.empty(); }
  std::size_t size() const noexcept { return entries_.size(); }

  // False if the message would exceed the limit; nothing is queued then.
  [[nodiscard]] bool Push(Message message) {
    const std::size_t bytes = message.ByteSizeLong();
    if (bytes > max_bytes_ - bytes_) return false;
    bytes_ += bytes;
    entries_.push_back({std::move(message), bytes});
    return true;
  }

  // Not empty.
  const Message& Front() const noexcept { return entries_.front().message; }
  void PopFront() noexcept {
    bytes_ -= entries_.front().bytes;
    entries_.pop_front();
  }

  // Drops everything behind the first message, which may be on its way out.
  void KeepOnlyFront() noexcept {
    while (entries_.size() > 1) {
      bytes_ -= entries_.back().bytes;
      entries_.pop_back();
    }
  }

  void Clear() noexcept {
    entries_.clear();
    bytes_ = 0;
  }

 private:
  struct Entry {
    Message message;
    std::size_t bytes;
  };

  const std::size_t max_bytes_;
  std::size_t bytes_ = 0;
  std::deque<Entry> entries_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_PEERS_OUTGOING_QUEUE_H_
