// What the ringds of a job over several nodes hand to their ranks for the rank exchange, inside one
// process: sealed segments, socket pairs between the nodes, and each node's eventfd.
#ifndef RINGD_TESTS_CLIENT_RANK_EXCHANGE_LINKS_H_
#define RINGD_TESTS_CLIENT_RANK_EXCHANGE_LINKS_H_

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "proto/base/memfd.h"
#include "proto/base/memory_mapping.h"
#include "proto/base/unique_fd.h"
#include "proto/rank_exchange/rank_exchange.h"
#include "proto/rank_exchange/rank_exchange_segment.h"

namespace ringd {

class RankExchangeLinks {
 public:
  struct Node {
    UniqueFd segment;
    std::uint64_t segment_bytes = 0;
    std::vector<UniqueFd> connections;  // by node; invalid where there is none
    MemoryMapping memory;
    RankExchangeView view;

    // What ringd announces in its answer to Join.
    std::uint32_t connection_count() const {
      std::uint32_t count = 0;
      for (const UniqueFd& connection : connections) count += connection.valid() ? 1U : 0U;
      return count;
    }
  };

  explicit RankExchangeLinks(std::uint32_t node_count, std::uint32_t member_count = 1,
                             std::uint32_t limit_bytes = kRankExchangeMostBytes)
      : nodes_(node_count) {
    for (std::uint32_t n = 0; n < node_count; ++n) {
      Node& node = nodes_[n];
      node.segment_bytes = RankExchangeView::SegmentBytes(member_count, node_count);
      node.segment = Must(CreateSealedMemfd("rank-exchange-test", node.segment_bytes));
      node.memory = Must(MemoryMapping::Map(node.segment.get(), node.segment_bytes));
      node.view = InitializeRankExchangeSegment(
          node.memory.data(), {member_count, node_count, n, limit_bytes, limit_bytes});
      node.connections.resize(node_count);
      node.connections[n] = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    }
    for (std::uint32_t n = 1; n < node_count; ++n) {
      int ends[2];
      if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        throw std::runtime_error("socketpair");
      }
      nodes_[0].connections[n] = UniqueFd(ends[0]);
      nodes_[n].connections[0] = UniqueFd(ends[1]);
    }
  }

  Node& operator[](std::size_t node) { return nodes_[node]; }
  std::size_t size() const { return nodes_.size(); }

 private:
  template <typename T>
  static T Must(absl::StatusOr<T> value) {
    if (!value.ok()) throw std::runtime_error(value.status().ToString());
    return *std::move(value);
  }

  std::vector<Node> nodes_;
};

// Drives for a node whose rank is not in a call, as its ringd does (RankExchangeWatch::Look), far
// more often.
class DrivingRingd {
 public:
  explicit DrivingRingd(RankExchangeLinks::Node& node) {
    std::vector<UniqueFd> connections;
    for (const UniqueFd& fd : node.connections) connections.emplace_back(::dup(fd.get()));
    auto exchange = RankExchange::Create(node.view, kRankExchangeRingd, std::move(connections));
    if (!exchange.ok()) throw std::runtime_error(exchange.status().ToString());
    exchange_ = *std::move(exchange);
    thread_ = std::thread([this] {
      while (!stop_) {
        if (!exchange_->BecomeDriver()) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
          continue;
        }
        exchange_->Drive(std::chrono::milliseconds(5));
        exchange_->StopDriving();
      }
    });
  }
  ~DrivingRingd() {
    stop_ = true;
    thread_.join();
  }
  DrivingRingd(const DrivingRingd&) = delete;
  DrivingRingd& operator=(const DrivingRingd&) = delete;

 private:
  std::unique_ptr<RankExchange> exchange_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace ringd

#endif  // RINGD_TESTS_CLIENT_RANK_EXCHANGE_LINKS_H_
