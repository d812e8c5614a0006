// Which message goes next where several senders share a line.
#ifndef RINGD_BACKENDS_COLLECTIVES_WEIGHTED_FAIR_QUEUE_H_
#define RINGD_BACKENDS_COLLECTIVES_WEIGHTED_FAIR_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <list>
#include <vector>

namespace ringd {

// Start-time fair queueing (P. Goyal, H. M. Vin, H. Cheng: Start-time Fair Queueing: A Scheduling
// Algorithm for Integrated Services Packet Switching Networks, IEEE/ACM Trans. Networking 5, 1997).
//
// Each flow is a queue of its own: the message of the lowest order first, among equals first come
// first served. Whose turn it is carries a start tag: the finish tag of the one before it in its
// flow, or the virtual time if the flow had nothing to send; its finish tag is its start tag and
// its bytes divided by the flow's weight. The message with the least start tag goes next, and the
// virtual time is the start tag of the one that went last. So
//   - flows that always have something waiting get bytes in proportion to their weights, within one
//     message each, whatever the line's speed is and however it varies;
//   - what nobody else wants goes to whoever wants it, and nobody saves up or owes for later;
//   - a flow that was silent waits for at most one message of each other flow.
// A flow that can't send just now is set aside: it has no turn, and when it is back it counts as
// one that was silent.
//
// `Message` has a `Message* next` for the queue to use, a `std::uint64_t order`, and
// `std::size_t line_bytes() const`.
//
// Thread safety: none.
// Ownership: owns the flows; messages stay the caller's, and must live while they are in here.
// Invariant: `backlogged_` lists the flows with messages, but for those set aside.
template <typename Message>
class WeightedFairQueue {
 public:
  class Flow {
   public:
    // Nothing of it waits.
    bool empty() const noexcept { return head_ == nullptr; }
    bool is_set_aside() const noexcept { return set_aside_; }

   private:
    friend class WeightedFairQueue;
    std::uint64_t weight_ = 1;
    // Tags are in 1/256 byte, so that rounding does not show at any weight up to 100. They may
    // wrap around: only differences count.
    std::uint64_t start_ = 0;   // of the first message, if there is one
    std::uint64_t finish_ = 0;  // of the message that went last
    Message* head_ = nullptr;
    Message* tail_ = nullptr;
    bool set_aside_ = false;
  };

  WeightedFairQueue() = default;
  WeightedFairQueue(const WeightedFairQueue&) = delete;
  WeightedFairQueue& operator=(const WeightedFairQueue&) = delete;

  // Requirement: weight > 0. Valid until RemoveFlow().
  Flow* AddFlow(std::uint32_t weight) {
    Flow& flow = flows_.emplace_back();
    flow.weight_ = weight;
    flow.finish_ = virtual_time_;
    backlogged_.reserve(flows_.size());
    return &flow;
  }
  // Requirement: nothing of it is waiting.
  void RemoveFlow(const Flow* flow) noexcept {
    flows_.remove_if([flow](const Flow& other) { return &other == flow; });
  }
  std::size_t flow_count() const noexcept { return flows_.size(); }

  // Nothing waits but messages of flows that are set aside.
  bool empty() const noexcept { return backlogged_.empty(); }

  void SetAside(Flow& flow) noexcept {
    flow.set_aside_ = true;
    std::erase(backlogged_, &flow);
  }
  void Readmit(Flow& flow) noexcept {
    if (!flow.set_aside_) return;
    flow.set_aside_ = false;
    if (flow.head_ == nullptr) return;
    flow.start_ = Later(virtual_time_, flow.start_);
    backlogged_.push_back(&flow);
  }

  void Push(Flow& flow, Message& message) noexcept {
    if (flow.head_ == nullptr) {
      flow.start_ = Later(virtual_time_, flow.finish_);
      if (!flow.set_aside_) backlogged_.push_back(&flow);
    }
    // Mostly it belongs to the end, or near the beginning.
    const bool is_last = flow.head_ != nullptr && flow.tail_->order <= message.order;
    Message** link = is_last ? &flow.tail_->next : &flow.head_;
    while (*link != nullptr && (*link)->order <= message.order) link = &(*link)->next;
    message.next = *link;
    *link = &message;
    if (message.next == nullptr) flow.tail_ = &message;
  }

  // The message whose turn it is. Requirement: !empty().
  Message& Front() noexcept { return *(*FindNext())->head_; }
  Message& Pop() noexcept {
    const auto next = FindNext();
    Flow& flow = **next;
    Message& message = *flow.head_;
    virtual_time_ = flow.start_;
    flow.finish_ = flow.start_ + (std::uint64_t{message.line_bytes()} << kTagBits) / flow.weight_;
    flow.start_ = flow.finish_;
    flow.head_ = message.next;
    if (flow.head_ == nullptr) backlogged_.erase(next);
    return message;
  }

  // Takes out the messages for which `predicate` is true, and hands each to `taken`.
  template <typename Predicate, typename Taken>
  void RemoveIf(Predicate predicate, Taken taken) noexcept {
    for (Flow& flow : flows_) RemoveIf(flow, predicate, taken);
  }
  template <typename Predicate, typename Taken>
  void RemoveIf(Flow& flow, Predicate predicate, Taken taken) noexcept {
    Message** link = &flow.head_;
    Message* last = nullptr;
    while (Message* const message = *link) {
      if (predicate(*message)) {
        *link = message->next;
        taken(*message);
      } else {
        last = message;
        link = &message->next;
      }
    }
    flow.tail_ = last;
    if (flow.head_ == nullptr) std::erase(backlogged_, &flow);
  }

 private:
  // Of equal ones, whoever has waited longer. There are as many flows as jobs: few.
  auto FindNext() noexcept {
    auto next = backlogged_.begin();
    for (auto it = std::next(next); it != backlogged_.end(); ++it) {
      if (Before((*it)->start_, (*next)->start_)) next = it;
    }
    return next;
  }

  static constexpr int kTagBits = 8;

  static bool Before(std::uint64_t a, std::uint64_t b) noexcept {
    return static_cast<std::int64_t>(a - b) < 0;
  }
  static std::uint64_t Later(std::uint64_t a, std::uint64_t b) noexcept {
    return Before(a, b) ? b : a;
  }

  std::list<Flow> flows_;
  std::vector<Flow*> backlogged_;
  std::uint64_t virtual_time_ = 0;
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_COLLECTIVES_WEIGHTED_FAIR_QUEUE_H_
