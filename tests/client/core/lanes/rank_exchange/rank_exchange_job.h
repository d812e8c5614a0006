// The ranks of a job over several nodes with a rank exchange, as parts of one test.
#ifndef RINGD_TESTS_CLIENT_CORE_LANES_RANK_EXCHANGE_RANK_EXCHANGE_JOB_H_
#define RINGD_TESTS_CLIENT_CORE_LANES_RANK_EXCHANGE_RANK_EXCHANGE_JOB_H_

#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/core/attach/session_state.h"
#include "client/core/lanes/rank_exchange/rank_exchange_operations.h"
#include "client/core/tensors/registrations.h"
#include "tests/client/rank_exchange_links.h"

namespace ringd::client {

inline Clock::time_point InTenSeconds() { return Clock::now() + std::chrono::seconds(10); }

// An invalid one stays that.
inline UniqueFd Duplicate(const UniqueFd& fd) { return UniqueFd(::dup(fd.get())); }

// One rank's process, as far as the rank exchange goes.
struct ExchangingRank {
  ExchangingRank(RankExchangeLinks::Node& node, std::uint32_t place, std::int32_t job_size,
                 std::chrono::nanoseconds spin)
      : view(node.view), member(node.view.Member(place)) {
    // Not through RankExchangeMemory: ThreadSanitizer does not see that two mappings are the same
    // memory.
    std::vector<UniqueFd> connections;
    for (const UniqueFd& fd : node.connections) connections.push_back(Duplicate(fd));
    auto exchange = RankExchange::Create(node.view, place, std::move(connections));
    REQUIRE(exchange.ok());
    operations = std::make_unique<RankExchangeOperations>(*std::move(exchange), place, job_size,
                                                          state, spin);
  }

  // Again, where a busy machine has kept somebody away for too long: then all ranks have given it
  // up.
  RankExchangeEnd CarryThrough(Registration& registration, const void* source, void* destination) {
    constexpr int kTries = 100;
    RankExchangeEnd end = RankExchangeEnd::kGivenUp;
    for (int i = 0; i < kTries && end == RankExchangeEnd::kGivenUp; ++i) {
      end = Carry(registration, source, destination);
    }
    return end;
  }
  RankExchangeEnd Carry(Registration& registration, const void* source, void* destination) {
    RankExchangeStay stay;
    RankExchangeEnd end = operations->Carry(registration, source, destination, stay);
    const Clock::time_point until = InTenSeconds();
    while (end == RankExchangeEnd::kUnderWay && Clock::now() < until) {
      const RankExchangeOutcome outcome = operations->Look(stay);
      if (outcome == RankExchangeOutcome::kPending) {
        if (!state.alive()) return RankExchangeEnd::kEnded;
        operations->TakeTurn(stay, until);
        continue;
      }
      operations->Finish(stay, outcome);
      end = outcome == RankExchangeOutcome::kCompleted ? RankExchangeEnd::kCompleted
                                                       : RankExchangeEnd::kGivenUp;
    }
    return end;
  }

  // `description` as every rank registers it.
  Registration& Register(const TensorDescription& description, std::uint32_t number = 0) {
    return *registrations.Find(registrations.Add(description, {number, number, number}, 0));
  }

  const RankExchangeView view;
  RankExchangeMember& member;
  SessionState state;
  Registrations registrations;
  std::unique_ptr<RankExchangeOperations> operations;
};

struct RankExchangeJob {
  explicit RankExchangeJob(std::uint32_t node_count, std::uint32_t member_count = 1,
                           std::chrono::nanoseconds spin = std::chrono::nanoseconds(0),
                           std::uint32_t limit_bytes = kRankExchangeMostBytes)
      : links(node_count, member_count, limit_bytes) {
    const auto size = static_cast<std::int32_t>(node_count * member_count);
    for (std::uint32_t rank = 0; rank < node_count * member_count; ++rank) {
      ranks.push_back(std::make_unique<ExchangingRank>(links[rank / member_count],
                                                       rank % member_count, size, spin));
    }
  }

  ExchangingRank& operator[](std::size_t rank) { return *ranks[rank]; }
  std::size_t size() const { return ranks.size(); }

  // Runs `body(rank)` in a thread for each rank and waits for all. No checks of the test in it:
  // Catch is not to be called from several threads.
  void OnAll(const std::function<void(std::size_t)>& body) {
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < size(); ++rank) threads.emplace_back(body, rank);
    for (std::thread& thread : threads) thread.join();
  }

  RankExchangeLinks links;
  std::vector<std::unique_ptr<ExchangingRank>> ranks;
};

inline TensorDescription Reduction(const std::string& name, DataType type, ReduceOp op,
                                   std::uint64_t count) {
  TensorDescription description;
  description.name = name;
  description.data_type = type;
  description.op = op;
  description.shape = {static_cast<std::int64_t>(count)};
  description.element_count = count;
  return description;
}

inline TensorDescription Barrier(const std::string& name) {
  TensorDescription description;
  description.name = name;
  description.kind = CollectiveKind::kBarrier;
  description.data_type = DataType::kUint8;
  return description;
}

}  // namespace ringd::client

#endif  // RINGD_TESTS_CLIENT_CORE_LANES_RANK_EXCHANGE_RANK_EXCHANGE_JOB_H_
