// Messages that wait to be sent, and where they come from.
#ifndef RINGD_BACKENDS_COLLECTIVES_QUEUED_SEND_H_
#define RINGD_BACKENDS_COLLECTIVES_QUEUED_SEND_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "backends/collectives/message.h"
#include "backends/collectives/message_wire.h"
#include "proto/types/ids.h"

namespace ringd {

// One message, from MessageWire::Send() until the network is done with it. `Self` derives from this
// and adds what its backend needs. Suits a WeightedFairQueue and a SendList.
template <typename Self>
struct QueuedSend {
  Self* next = nullptr;
  MessageHeader header;
  std::span<const std::byte> payload;
  SendObserver* observer = nullptr;
  std::uint64_t order = 0;  // of the observer
  NodeIndex to;

  std::size_t line_bytes() const noexcept { return sizeof(header) + payload.size(); }

  void Set(NodeIndex destination, const MessageHeader& message_header,
           std::span<const std::byte> message_payload, SendObserver* message_observer) noexcept {
    next = nullptr;
    header = message_header;
    payload = message_payload;
    observer = message_observer;
    order = message_observer != nullptr ? message_observer->order() : 0;
    to = destination;
  }
};

// Recycles sends. Ownership: of the free ones.
template <typename Send>
class SendPool {
 public:
  SendPool() = default;
  SendPool(const SendPool&) = delete;
  SendPool& operator=(const SendPool&) = delete;
  ~SendPool() {
    while (free_ != nullptr) delete std::exchange(free_, free_->next);
  }

  Send* Take() {
    if (free_ == nullptr) return new Send;
    return std::exchange(free_, free_->next);
  }
  void GiveBack(Send* send) noexcept {
    send->next = free_;
    free_ = send;
  }
  // Gives it back, then tells its observer.
  void Finish(Send& send) noexcept {
    SendObserver* const observer = send.observer;
    const NodeIndex to = send.to;
    GiveBack(&send);
    if (observer != nullptr) observer->OnSent(to);
  }

 private:
  Send* free_ = nullptr;
};

// First come, first served. Ownership: none.
template <typename Send>
class SendList {
 public:
  bool empty() const noexcept { return head_ == nullptr; }

  void PushBack(Send& send) noexcept {
    send.next = nullptr;
    (head_ == nullptr ? head_ : tail_->next) = &send;
    tail_ = &send;
  }

  // Requirement: !empty().
  Send& PopFront() noexcept { return *std::exchange(head_, head_->next); }

  // Takes out the sends for which `predicate` is true, and hands each to `taken`.
  template <typename Predicate, typename Taken>
  void RemoveIf(Predicate predicate, Taken taken) noexcept {
    Send** link = &head_;
    Send* last = nullptr;
    while (Send* const send = *link) {
      if (predicate(*send)) {
        *link = send->next;
        taken(*send);
      } else {
        last = send;
        link = &send->next;
      }
    }
    tail_ = last;
  }

 private:
  Send* head_ = nullptr;
  Send* tail_ = nullptr;
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_COLLECTIVES_QUEUED_SEND_H_
