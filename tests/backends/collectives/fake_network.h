// A network in memory that delays and reorders whatever it can.
#ifndef RINGD_TESTS_BACKENDS_COLLECTIVES_FAKE_NETWORK_H_
#define RINGD_TESTS_BACKENDS_COLLECTIVES_FAKE_NETWORK_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "backends/collectives/early_messages.h"
#include "backends/collectives/wire_communicator.h"

namespace ringd {

// Of which a few numbers are several messages, and every algorithm is taken by some.
inline AlgorithmOptions TinyChunks() {
  AlgorithmOptions options;
  options.chunk_bytes = 64;
  options.flat_all_reduce_bytes = 100;
  options.small_all_reduce_bytes = 32;
  options.small_broadcast_bytes = 32;
  return options;
}

// N communicators whose messages are delivered one by one, in an order drawn at random. A payload
// is read when its message is delivered, as late as a network may: so a buffer that changes too
// early is found out.
//
// Thread safety: one thread.
class FakeNetwork {
 public:
  FakeNetwork(int node_count, const AlgorithmOptions& options, unsigned seed) : random_(seed) {
    for (int node = 0; node < node_count; ++node) {
      CommunicatorSpec spec;
      spec.wire_id = 7;
      spec.self = NodeIndex(node);
      spec.addresses.resize(static_cast<std::size_t>(node_count));
      spec.algorithms = options;
      ends_.push_back(
          std::make_unique<WireCommunicator>(spec, std::make_unique<Wire>(*this), pool_, busy_));
    }
  }

  WireCommunicator& at(int node) { return *ends_[static_cast<std::size_t>(node)]; }
  int node_count() const { return static_cast<int>(ends_.size()); }
  const BusyCommunicators& busy() const { return busy_; }
  BusyCommunicators& busy() { return busy_; }
  // The node goes.
  void Close(int node) { ends_[static_cast<std::size_t>(node)].reset(); }
  std::size_t in_transit() const { return messages_.size(); }
  std::uint32_t Random(std::uint32_t below) {
    return static_cast<std::uint32_t>(random_() % below);
  }

  // The lowest and the highest order of an operation's messages in transit.
  std::pair<std::uint64_t, std::uint64_t> OrdersOf(OperationId id) const {
    std::pair<std::uint64_t, std::uint64_t> orders{UINT64_MAX, 0};
    for (const Message& message : messages_) {
      if (message.observer == nullptr || !(message.header.operation == id)) continue;
      orders.first = std::min(orders.first, message.observer->order());
      orders.second = std::max(orders.second, message.observer->order());
    }
    return orders;
  }

  // Delivers one message, if there is one, and lets some node advance.
  void Step() {
    if (!messages_.empty()) {
      std::swap(messages_[Random(static_cast<std::uint32_t>(messages_.size()))], messages_.back());
      const Message message = messages_.back();
      messages_.pop_back();
      at(message.header.destination).OnMessage(message.header, message.payload);
      if (message.observer != nullptr)
        message.observer->OnSent(NodeIndex(message.header.destination));
    }
    at(static_cast<int>(Random(static_cast<std::uint32_t>(ends_.size())))).Advance();
  }

 private:
  struct Message {
    MessageHeader header;
    std::span<const std::byte> payload;
    SendObserver* observer;
  };

  class Wire final : public MessageWire {
   public:
    explicit Wire(FakeNetwork& network) : network_(network) {}
    bool Send(NodeIndex, const MessageHeader& header, std::span<const std::byte> payload,
              SendPriority, SendObserver* observer) noexcept override {
      network_.messages_.push_back({header, payload, observer});
      return false;
    }
    void Withdraw(SendObserver* observer) noexcept override {
      auto& messages = network_.messages_;
      for (std::size_t i = 0; i < messages.size();) {
        if (messages[i].observer != observer) {
          ++i;
          continue;
        }
        const NodeIndex to(messages[i].header.destination);
        messages.erase(messages.begin() + static_cast<std::ptrdiff_t>(i));
        observer->OnSent(to);
      }
    }
    NeighbourLine DescribeLine(NodeIndex) const override { return {.transports = "fake"}; }

   private:
    FakeNetwork& network_;
  };

  std::mt19937 random_;
  EarlyMessagePool pool_;
  BusyCommunicators busy_;
  std::vector<Message> messages_;
  std::vector<std::unique_ptr<WireCommunicator>> ends_;
};

}  // namespace ringd

#endif  // RINGD_TESTS_BACKENDS_COLLECTIVES_FAKE_NETWORK_H_
