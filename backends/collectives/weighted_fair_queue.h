// Which message goes next where several senders share a line.
#ifndef RINGD_BACKENDS_COLLECTIVES_WEIGHTED_FAIR_QUEUE_H_
#define RINGD_BACKENDS_COLLECTIVES_WEIGHTED_FAIR_QUEUE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <list>
#include <vector>

#include "backends/collectives/fair_turns.h"
#include "backends/communicator.h"

namespace ringd {

// Hierarchical start-time fair queueing (fair_turns.h): shares take turns by their weights, and the
// flows of one share take turns as equals. So
//   - shares that always have something waiting get bytes in proportion to their weights, however
//     many flows each has, whatever the line's speed is and however it varies; flows of one share
//     that always have something waiting get equal parts of what it gets;
//   - what nobody else wants goes to whoever wants it, and nobody saves up or owes for later;
//   - a share that was silent waits for at most one message of each other share, and a flow that
//     was silent for at most one message of each other flow of its share once its share has turns.
// Within a flow the message of the lowest order goes first, among equals first come first served.
// A flow that can't send just now is set aside: it has no turn, and when it is back it counts as
// one that was silent.
//
// `Message` has a `Message* next` for the queue to use, a `std::uint64_t order`, and
// `std::size_t line_bytes() const`.
//
// Thread safety: none.
// Ownership: owns shares and flows; messages stay the caller's, and must live while they are here.
// Invariants: a share has flows. It has a turn if and only if one of its flows has; a flow has one
//   if and only if it has messages and is not set aside.
template <typename Message>
class WeightedFairQueue {
 private:
  struct Share;

 public:
  class Flow : private FairTurn {
   public:
    // Nothing of it waits.
    bool empty() const noexcept { return head_ == nullptr; }
    bool is_set_aside() const noexcept { return set_aside_; }

   private:
    friend class WeightedFairQueue;
    friend class FairTurns<Flow>;
    Share* share_ = nullptr;
    Message* head_ = nullptr;
    Message* tail_ = nullptr;
    bool set_aside_ = false;
    typename std::list<Flow>::iterator place_;
  };

  WeightedFairQueue() = default;
  WeightedFairQueue(const WeightedFairQueue&) = delete;
  WeightedFairQueue& operator=(const WeightedFairQueue&) = delete;

  // Valid until RemoveFlow().
  Flow* AddFlow(const LineShare& line_share) {
    Share& share = FindOrAddShare(line_share);
    Flow& flow = flows_.emplace_back();
    flow.place_ = std::prev(flows_.end());
    flow.share_ = &share;
    share.flows.Add(flow, ++share.flow_count);
    return &flow;
  }
  // Requirement: nothing of it is waiting.
  void RemoveFlow(const Flow* flow) noexcept {
    Share* const share = flow->share_;
    flows_.erase(flow->place_);
    if (--share->flow_count > 0) return;
    shares_.remove_if([share](const Share& other) { return &other == share; });
  }
  std::size_t flow_count() const noexcept { return flows_.size(); }

  // Nothing waits but messages of flows that are set aside.
  bool empty() const noexcept { return turns_.empty(); }

  void SetAside(Flow& flow) noexcept {
    if (flow.set_aside_) return;
    if (!flow.empty()) EndTurns(flow);
    flow.set_aside_ = true;
  }
  void Readmit(Flow& flow) noexcept {
    if (!flow.set_aside_) return;
    flow.set_aside_ = false;
    if (!flow.empty()) BeginTurns(flow);
  }

  void Push(Flow& flow, Message& message) noexcept {
    if (flow.empty() && !flow.set_aside_) BeginTurns(flow);
    // Mostly it belongs to the end, or near the beginning.
    const bool is_last = !flow.empty() && flow.tail_->order <= message.order;
    Message** link = is_last ? &flow.tail_->next : &flow.head_;
    while (*link != nullptr && (*link)->order <= message.order) link = &(*link)->next;
    message.next = *link;
    *link = &message;
    if (message.next == nullptr) flow.tail_ = &message;
  }

  // The message whose turn it is. Requirement: !empty().
  Message& Front() noexcept { return *turns_.Next().flows.Next().head_; }
  Message& Pop() noexcept {
    Share& share = turns_.Next();
    Flow& flow = share.flows.Next();
    Message& message = *flow.head_;
    turns_.Charge(share, message.line_bytes());
    share.flows.Charge(flow, message.line_bytes());
    flow.head_ = message.next;
    if (flow.empty()) EndTurns(flow);
    return message;
  }

  // Takes out the messages for which `predicate` is true, and hands each to `taken`.
  template <typename Predicate, typename Taken>
  void RemoveIf(Predicate predicate, Taken taken) noexcept {
    for (Flow& flow : flows_) RemoveIf(flow, predicate, taken);
  }
  template <typename Predicate, typename Taken>
  void RemoveIf(Flow& flow, Predicate predicate, Taken taken) noexcept {
    if (flow.empty()) return;
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
    if (flow.empty() && !flow.set_aside_) EndTurns(flow);
  }

 private:
  struct Share : FairTurn {
    std::uint64_t id = 0;
    std::size_t flow_count = 0;
    FairTurns<Flow> flows;  // those that have turns
  };

  Share& FindOrAddShare(const LineShare& wanted) {
    const auto found = std::find_if(shares_.begin(), shares_.end(), [&wanted](const Share& share) {
      return wanted.id != 0 && share.id == wanted.id;
    });
    if (found != shares_.end()) return *found;
    Share& share = shares_.emplace_back();
    share.id = wanted.id;
    share.set_weight(std::max(wanted.weight, 1u));
    turns_.Add(share, shares_.size());
    return share;
  }

  void BeginTurns(Flow& flow) noexcept {
    Share& share = *flow.share_;
    if (share.flows.empty()) turns_.Begin(share);
    share.flows.Begin(flow);
  }
  void EndTurns(Flow& flow) noexcept {
    Share& share = *flow.share_;
    share.flows.End(flow);
    if (share.flows.empty()) turns_.End(share);
  }

  std::list<Flow> flows_;
  std::list<Share> shares_;
  FairTurns<Share> turns_;  // those that have turns
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_COLLECTIVES_WEIGHTED_FAIR_QUEUE_H_
