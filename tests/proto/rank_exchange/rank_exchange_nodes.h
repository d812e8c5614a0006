// Nodes of a rank exchange inside one process: segments on the heap, socket pairs between them.
#ifndef RINGD_TESTS_PROTO_RANK_EXCHANGE_RANK_EXCHANGE_NODES_H_
#define RINGD_TESTS_PROTO_RANK_EXCHANGE_RANK_EXCHANGE_NODES_H_

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <stdexcept>
#include <vector>

#include "proto/rank_exchange/rank_exchange.h"

namespace ringd::testing {

// Every process of a node has an exchange of its own, as it would have between processes.
class RankExchangeNodes {
 public:
  explicit RankExchangeNodes(std::uint32_t node_count, std::uint32_t member_count = 1,
                             std::uint32_t limit_bytes = kRankExchangeMostBytes,
                             std::optional<std::uint32_t> flat_bytes = std::nullopt)
      : member_count_(member_count) {
    const std::uint32_t flat = flat_bytes.value_or(limit_bytes);
    for (std::uint32_t n = 0; n < node_count; ++n) {
      Node& node = nodes_.emplace_back();
      const std::uint64_t bytes = RankExchangeView::SegmentBytes(member_count, node_count);
      node.memory.reset(
          static_cast<std::byte*>(std::aligned_alloc(4096, (bytes + 4095) & ~4095UL)));
      std::fill_n(node.memory.get(), bytes, std::byte{0});
      node.view = InitializeRankExchangeSegment(node.memory.get(),
                                                {member_count, node_count, n, limit_bytes, flat});
      node.connections.resize(node_count);
      node.connections[n] = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    }
    for (std::uint32_t n = 0; n < node_count; ++n) {
      RankExchangeNodeSet neighbours = NeighboursOf(n, node_count, flat < limit_bytes);
      while (neighbours != 0) {
        const std::uint32_t other = TakeLowest(neighbours);
        if (other < n) continue;
        int ends[2];
        REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
        nodes_[n].connections[other] = UniqueFd(ends[0]);
        nodes_[other].connections[n] = UniqueFd(ends[1]);
      }
    }
    for (Node& node : nodes_) {
      for (std::uint32_t m = 0; m < member_count; ++m) {
        node.members.push_back(Exchange(node, m));
      }
      node.ringd = Exchange(node, kRankExchangeRingd);
    }
  }

  RankExchange& Member(std::uint32_t node, std::uint32_t member = 0) {
    return *nodes_[node].members[member];
  }
  RankExchange& Ringd(std::uint32_t node) { return *nodes_[node].ringd; }
  const RankExchangeView& View(std::uint32_t node) const { return nodes_[node].view; }
  // The node's end of the connection to `other`.
  int Connection(std::uint32_t node, std::uint32_t other) const {
    return nodes_[node].connections[other].get();
  }
  std::uint32_t node_count() const { return static_cast<std::uint32_t>(nodes_.size()); }
  std::uint32_t member_count() const { return member_count_; }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  struct Node {
    std::unique_ptr<std::byte, Free> memory;
    RankExchangeView view;
    std::vector<UniqueFd> connections;
    std::vector<std::unique_ptr<RankExchange>> members;
    std::unique_ptr<RankExchange> ringd;
  };

  static std::unique_ptr<RankExchange> Exchange(const Node& node, std::uint32_t self) {
    std::vector<UniqueFd> connections;
    for (const UniqueFd& connection : node.connections) {
      connections.emplace_back(connection.valid() ? ::dup(connection.get()) : -1);
    }
    auto exchange = RankExchange::Create(node.view, self, std::move(connections));
    REQUIRE(exchange.ok());
    return *std::move(exchange);
  }

  const std::uint32_t member_count_;
  std::vector<Node> nodes_;
};

// Of the operation that a test is about.
inline constexpr RankExchangeKey kKey{7, 0};

inline std::size_t CellsInUse(const RankExchangeView& view) {
  std::size_t count = 0;
  for (std::uint32_t i = 0; i < kRankExchangeCells; ++i) {
    count += view.Cell(i).state.load() != RankExchangeCellState::kFree ? 1U : 0U;
  }
  return count;
}

// Float32 numbers under a key.
class Floats : public RankExchangeContribution {
 public:
  Floats(const RankExchangeKey& of, const std::vector<float>& values) {
    key = of;
    data_type = DataType::kFloat32;
    source = values.data();
    element_count = values.size();
  }
};

inline void DriveOnce(RankExchange& exchange,
                      std::chrono::milliseconds most = std::chrono::milliseconds(0)) {
  // No assertion: it may be another thread's.
  if (!exchange.BecomeDriver()) throw std::runtime_error("another member drives");
  exchange.Drive(most);
  exchange.StopDriving();
}

// Until the operation is over, for at most ten seconds.
inline RankExchangeOutcome Finish(RankExchange& exchange, std::uint32_t cell) {
  const auto end = Clock::now() + std::chrono::seconds(10);
  while (exchange.Look(cell) == RankExchangeOutcome::kPending && Clock::now() < end) {
    if (exchange.BecomeDriver()) {
      exchange.Drive(std::chrono::milliseconds(5));
      exchange.StopDriving();
    } else {
      exchange.Sleep(cell, std::chrono::milliseconds(5));
    }
  }
  return exchange.Look(cell);
}

// Adds these values with the other ranks'; once more, as another operation, where a busy machine
// has kept somebody away for too long: then all ranks have given it up. `step`: another for each
// call.
inline bool AddPatiently(RankExchange& exchange, std::uint64_t step,
                         const std::vector<float>& values, std::uint32_t& cell) {
  constexpr std::uint64_t kTries = 100;
  for (std::uint64_t i = 0; i < kTries; ++i) {
    const Floats floats({1, step * kTries + i}, values);
    RankExchangeOutcome outcome = exchange.Contribute(floats, cell);
    if (outcome == RankExchangeOutcome::kGivenUp) continue;
    if (outcome == RankExchangeOutcome::kPending) outcome = Finish(exchange, cell);
    if (outcome == RankExchangeOutcome::kCompleted) return true;
    if (outcome != RankExchangeOutcome::kGivenUp) return false;
    exchange.Depart(cell);
  }
  return false;
}

inline std::vector<float> ResultOf(RankExchange& exchange, std::uint32_t cell, std::size_t count) {
  std::vector<float> result(count, -1);
  exchange.Take(cell, DataType::kFloat32, result.data(), count, {});
  return result;
}

}  // namespace ringd::testing

#endif  // RINGD_TESTS_PROTO_RANK_EXCHANGE_RANK_EXCHANGE_NODES_H_
