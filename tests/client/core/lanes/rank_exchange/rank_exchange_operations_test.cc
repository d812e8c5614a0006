// Operations that ranks carry out themselves over several nodes: threads of the test are the ranks.
// Runs under ThreadSanitizer too.
#include "client/core/lanes/rank_exchange/rank_exchange_operations.h"

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "proto/reduce/tensor_scaling.h"
#include "tests/client/core/lanes/rank_exchange/rank_exchange_job.h"

namespace ringd::client {
namespace {

using Bytes = std::vector<std::byte>;

Bytes Random(std::size_t count, std::uint32_t seed) {
  std::mt19937 generator(seed);
  Bytes bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(generator());
  return bytes;
}

// What ringd's flat all-reduce makes of the ranks' tensors: each node packs its ranks'
// (daemon/execution), the nodes' are combined in their order, and the result is scaled.
Bytes ThroughRingd(const TensorDescription& tensor, const std::vector<Bytes>& ranks,
                   std::size_t members) {
  const std::size_t nodes = ranks.size() / members;
  const TensorScaling scaling =
      ScalingOf(tensor.data_type, tensor.op, tensor.prescale, tensor.postscale,
                static_cast<int>(ranks.size()), /*several_nodes=*/true);
  std::vector<Bytes> packed(nodes, Bytes(tensor.bytes()));
  std::vector<const void*> inputs;
  for (std::size_t node = 0; node < nodes; ++node) {
    std::vector<const void*> sources;
    for (std::size_t m = 0; m < members; ++m) sources.push_back(ranks[node * members + m].data());
    void* destination = packed[node].data();
    CombineContributions(tensor.data_type, tensor.op, scaling.prescale, nullptr, sources,
                         {&destination, 1}, tensor.element_count, {}, Streaming::kCached);
    inputs.push_back(destination);
  }
  Bytes result(tensor.bytes());
  ReduceMany(tensor.data_type, tensor.op, inputs, result.data(), tensor.element_count);
  Scale(tensor.data_type, result.data(), tensor.element_count, scaling.result);
  return result;
}

TEST_CASE("RankExchangeOperations: every type and operator has the bits of the way through ringd") {
  constexpr std::size_t kMembers = 2;
  constexpr std::uint64_t kCount = 37;
  const std::chrono::nanoseconds spin = std::chrono::microseconds(GENERATE(0, 50));
  RankExchangeJob job(3, kMembers, spin);
  for (int type = 0; type < kDataTypeCount; ++type) {
    for (int op = 0; op < kReduceOpCount; ++op) {
      for (const bool scaled : {false, true}) {
        TensorDescription tensor =
            Reduction("t" + std::to_string(type) + "." + std::to_string(op) + (scaled ? "s" : ""),
                      static_cast<DataType>(type), static_cast<ReduceOp>(op), kCount);
        if (tensor.data_type == DataType::kBool && tensor.op == ReduceOp::kAverage) continue;
        if (scaled) {
          tensor.prescale = 0.75;
          tensor.postscale = 3;
        }
        std::vector<Bytes> sources;
        for (std::uint32_t rank = 0; rank < job.size(); ++rank) {
          sources.push_back(Random(tensor.bytes(), rank));
        }
        std::vector<Bytes> results(job.size(), Bytes(tensor.bytes()));
        std::vector<RankExchangeEnd> ends(job.size());
        job.OnAll([&](std::size_t rank) {
          Registration& registration = job[rank].Register(tensor);
          ends[rank] =
              job[rank].CarryThrough(registration, sources[rank].data(), results[rank].data());
        });
        const Bytes expected = ThroughRingd(tensor, sources, kMembers);
        INFO(tensor.name);
        for (std::size_t rank = 0; rank < job.size(); ++rank) {
          CHECK(ends[rank] == RankExchangeEnd::kCompleted);
          CHECK(results[rank] == expected);
        }
      }
    }
  }
}

TEST_CASE("RankExchangeOperations: averages of integers round down, those of floats do not") {
  RankExchangeJob job(2);
  const TensorDescription integers = Reduction("i", DataType::kInt64, ReduceOp::kAverage, 3);
  const TensorDescription floats = Reduction("f", DataType::kFloat32, ReduceOp::kAverage, 3);
  std::array<std::array<std::int64_t, 3>, 2> i = {{{-1, 7, INT64_MAX - 1}, {-2, 8, 1}}};
  std::array<std::array<float, 3>, 2> f = {{{-1, 7, 0.5F}, {-2, 8, 0.25F}}};
  std::array<bool, 2> completed{};
  job.OnAll([&](std::size_t rank) {
    // In place.
    completed[rank] = job[rank].CarryThrough(job[rank].Register(integers), i[rank].data(),
                                             i[rank].data()) == RankExchangeEnd::kCompleted &&
                      job[rank].CarryThrough(job[rank].Register(floats), f[rank].data(),
                                             f[rank].data()) == RankExchangeEnd::kCompleted;
  });
  for (std::size_t rank = 0; rank < 2; ++rank) {
    CHECK(completed[rank]);
    CHECK(i[rank] == std::array<std::int64_t, 3>{-2, 7, INT64_MAX / 2});
    CHECK(f[rank] == std::array<float, 3>{-1.5F, 7.5F, 0.375F});
  }
}

TEST_CASE("RankExchangeOperations: nobody leaves a barrier before the last has come") {
  RankExchangeJob job(2, 2);
  std::atomic<int> arrived{0};
  std::atomic<int> early{0};
  std::atomic<int> wrong{0};
  job.OnAll([&](std::size_t rank) {
    Registration& barrier = job[rank].Register(Barrier("b"));
    for (int round = 1; round <= 200; ++round) {
      ++arrived;
      if (job[rank].CarryThrough(barrier, nullptr, nullptr) != RankExchangeEnd::kCompleted) {
        ++wrong;
      }
      if (arrived < 4 * round) ++early;
    }
  });
  CHECK(wrong == 0);
  CHECK(early == 0);
  for (std::size_t rank = 0; rank < 4; ++rank) CHECK(job[rank].member.completed == 200);
}

TEST_CASE("RankExchangeOperations: what is offered, and what is not") {
  RankExchangeJob job(2, 1, std::chrono::nanoseconds(0), 1024);
  ExchangingRank& rank = job[0];
  const auto offers = [&rank](const TensorDescription& tensor) {
    return rank.operations->Offers(rank.Register(tensor));
  };
  CHECK(offers(Reduction("limit", DataType::kUint8, ReduceOp::kMax, 1024)));
  CHECK(offers(Reduction("empty", DataType::kFloat32, ReduceOp::kSum, 0)));
  CHECK(offers(Barrier("barrier")));
  CHECK_FALSE(offers(Reduction("too large", DataType::kUint8, ReduceOp::kMax, 1025)));
  TensorDescription broadcast = Reduction("broadcast", DataType::kUint8, ReduceOp::kSum, 8);
  broadcast.kind = CollectiveKind::kBroadcast;
  CHECK_FALSE(offers(broadcast));
  SECTION("nothing once it is broken") {
    rank.view.control().broken =
        RankExchangeBreak{RankExchangeBreak::Reason::kStopped, 0, 0}.ToWord();
    CHECK_FALSE(offers(Barrier("barrier")));
  }
  SECTION("nothing after the job's failure") {
    rank.state.Fail("rank 1 has died");
    CHECK_FALSE(offers(Barrier("barrier")));
  }
}

TEST_CASE(
    "RankExchangeOperations: who stays alone is given up, thrice, and then leaves it for a while") {
  RankExchangeJob job(2);
  const std::size_t alone = GENERATE(0U, 1U);
  ExchangingRank& rank = job[alone];
  Registration& tensor = rank.Register(Reduction("alone", DataType::kFloat32, ReduceOp::kSum, 1));
  const DrivingRingd other(job.links[1 - alone]);
  float value = 1;
  for (std::uint32_t i = 0; i < SubmissionCount::kMostGivenUp; ++i) {
    CHECK(rank.operations->Offers(tensor));
    const Clock::time_point before = Clock::now();
    CHECK(rank.Carry(tensor, &value, &value) == RankExchangeEnd::kGivenUp);
    CHECK(Clock::now() - before > RankExchange::kPatience / 2);
    CHECK(value == 1);
  }
  CHECK_FALSE(rank.operations->Offers(tensor));
  CHECK(rank.member.given_up == SubmissionCount::kMostGivenUp);
  CHECK(rank.member.completed == 0);
  // Others have nothing to do with it.
  CHECK(rank.operations->Offers(
      rank.Register(Reduction("other", DataType::kFloat32, ReduceOp::kSum, 1))));
}

TEST_CASE(
    "RankExchangeOperations: ranks that choose their way at random still add what belongs "
    "together") {
  // Given up where they differ: the value that is not summed here would be by ringd.
  constexpr int kSteps = 25;
  RankExchangeJob job(2, 2);
  std::atomic<int> completed{0};
  std::atomic<int> wrong{0};
  job.OnAll([&](std::size_t rank) {
    Registration& tensor =
        job[rank].Register(Reduction("mixed", DataType::kInt32, ReduceOp::kSum, 1));
    Registration& barrier = job[rank].Register(Barrier("meet"));
    for (int step = 0; step < kSteps; ++step) {
      // Keeps the ranks within one step, as ringd's results would.
      job[rank].CarryThrough(barrier, nullptr, nullptr);
      // One rank goes the other way in every fifth step.
      if (step % 5 == 4 && rank == static_cast<std::size_t>(step / 5 % 4)) {
        tensor.submissions->Accepted();
        continue;
      }
      std::int32_t value = step;
      const RankExchangeEnd end = job[rank].Carry(tensor, &value, &value);
      if (end == RankExchangeEnd::kCompleted) ++completed;
      if (value != (end == RankExchangeEnd::kCompleted ? 4 * step : step)) ++wrong;
    }
  });
  CHECK(wrong == 0);
  // All or none of the ranks.
  CHECK(completed % 4 == 0);
  CHECK(completed > 0);
  CHECK(completed <= 4 * (kSteps - kSteps / 5));
}

TEST_CASE("RankExchangeOperations: the end of the context ends a call") {
  RankExchangeJob job(2);
  const bool at_root = GENERATE(true, false);
  ExchangingRank& rank = job[at_root ? 0 : 1];
  Registration& tensor = rank.Register(Reduction("late", DataType::kFloat32, ReduceOp::kSum, 1));
  float source = 1;
  float destination = -1;
  std::atomic<RankExchangeEnd> end{RankExchangeEnd::kCompleted};
  std::thread caller([&] { end = rank.CarryThrough(tensor, &source, &destination); });
  const Clock::time_point deadline = InTenSeconds();
  while (rank.member.registration == 0 && Clock::now() < deadline) std::this_thread::yield();
  // The root gives it up now and then, and begins anew.
  if (!at_root) CHECK(rank.operations->callers() == 1);
  rank.state.Close();
  caller.join();
  CHECK(end == RankExchangeEnd::kEnded);
  CHECK(destination == -1);
  CHECK(rank.operations->callers() == 0);
  CHECK(rank.member.registration == 0);
}

TEST_CASE("RankExchangeOperations: ringd sees the oldest operation that a rank is in") {
  RankExchangeJob job(2);
  ExchangingRank& rank = job[1];
  const auto tensor = [&](std::uint32_t number) -> Registration& {
    return rank.Register(
        Reduction("t" + std::to_string(number), DataType::kFloat32, ReduceOp::kSum, 1), number);
  };
  const auto in_cells = [&](const RankExchangeView& view) {
    int count = 0;
    for (std::uint32_t i = 0; i < kRankExchangeCells; ++i) {
      count += view.Cell(i).state != RankExchangeCellState::kFree ? 1 : 0;
    }
    return count;
  };
  std::vector<std::thread> callers;
  for (std::uint32_t number : {40U, 41U}) {
    callers.emplace_back([&, number] {
      float value = 1;
      static_cast<void>(rank.Carry(tensor(number), &value, &value));
    });
    const Clock::time_point deadline = InTenSeconds();
    while (in_cells(rank.view) < static_cast<int>(number) - 39 && Clock::now() < deadline) {
      std::this_thread::yield();
    }
    while (rank.member.registration == 0 && Clock::now() < deadline) std::this_thread::yield();
    CHECK(rank.member.registration == 41);
    CHECK(rank.member.since_ns > 0);
    CHECK(rank.member.since_ns <= MonotonicNanos());
  }
  rank.state.Close();
  for (std::thread& caller : callers) caller.join();
  CHECK(rank.member.registration == 0);
  CHECK(rank.member.since_ns == 0);
}

TEST_CASE(
    "RankExchangeOperations: several threads of each rank at once, each with a tensor of its own") {
  constexpr int kThreads = 4;
  constexpr int kSteps = 100;
  RankExchangeJob job(2, 2, std::chrono::microseconds(20));
  std::atomic<int> wrong{0};
  std::atomic<int> completed{0};
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < job.size(); ++rank) {
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, rank, thread] {
        Registration& tensor = job[rank].Register(
            Reduction("t" + std::to_string(thread), DataType::kInt32, ReduceOp::kSum, 2));
        for (std::int32_t step = 0; step < kSteps; ++step) {
          std::array<std::int32_t, 2> value = {thread, step + static_cast<std::int32_t>(rank)};
          const auto end = job[rank].Carry(tensor, value.data(), value.data());
          if (end != RankExchangeEnd::kCompleted) continue;
          ++completed;
          if (value != std::array<std::int32_t, 2>{4 * thread, 4 * step + 6}) ++wrong;
        }
      });
    }
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  // On a busy machine some may have been given up.
  CHECK(completed > 0);
  std::uint64_t bytes = 0;
  for (std::size_t rank = 0; rank < job.size(); ++rank) bytes += job[rank].member.bytes;
  CHECK(bytes == 8 * static_cast<std::uint64_t>(completed));
}

TEST_CASE("RankExchangeOperations: a source may be used again when the call returns") {
  RankExchangeJob job(2);
  std::array<float, 2> results{};
  std::array<bool, 2> completed{};
  job.OnAll([&](std::size_t rank) {
    Registration& tensor =
        job[rank].Register(Reduction("reused", DataType::kFloat32, ReduceOp::kSum, 1));
    float source = 0;
    bool right = true;
    for (int step = 0; step < 300; ++step) {
      source = static_cast<float>(step);
      right &=
          job[rank].CarryThrough(tensor, &source, &results[rank]) == RankExchangeEnd::kCompleted;
      right &= results[rank] == static_cast<float>(2 * step);
      source = -1;
    }
    completed[rank] = right;
  });
  CHECK(completed == std::array<bool, 2>{true, true});
}

}  // namespace
}  // namespace ringd::client
