// The last tensors of steps, carried out together by threads of the test, which are the ranks. Runs under
// ThreadSanitizer too.
#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "client/core/fast_path/tail_operations.h"
#include "tests/client/core/fast_path/tail_job.h"

namespace ringd::client {
namespace {

using std::chrono::milliseconds;

// The values that rank `rank` brings in `step`, small enough for every type.
template <typename T>
std::vector<T> Values(std::size_t count, std::size_t rank, int step) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<T>((i + 3 * rank + static_cast<std::size_t>(step)) % 7 + 1);
  }
  return values;
}

// Several tensors a step, of which the last has more than the others together.
template <typename T>
void SumsAreRight(DataType type, ReduceOp op, double prescale, double postscale,
                  const std::vector<std::size_t>& counts) {
  constexpr int kSteps = 20;
  TailJob job(2, 2);
  std::atomic<int> wrong{0};
  std::atomic<int> carried{0};
  job.job.OnAll([&](std::size_t r) {
    TailRank& rank = job[r];
    std::vector<std::vector<T>> data(counts.size());
    for (std::size_t i = 0; i < counts.size(); ++i) {
      data[i].reserve(counts[i] + 1);  // an address also for nothing
      data[i].resize(counts[i]);
      TensorDescription tensor = Reduction("t" + std::to_string(i), type, op, counts[i]);
      tensor.prescale = prescale;
      tensor.postscale = postscale;
      rank.Add(tensor, data[i].data());
    }
    rank.Learn();
    for (int step = 0; step < kSteps; ++step) {
      for (std::size_t i = 0; i < counts.size(); ++i) {
        const std::vector<T> values = Values<T>(counts[i], r, step + static_cast<int>(i));
        std::copy(values.begin(), values.end(), data[i].begin());
      }
      std::vector<std::vector<T>> expected = data;
      const std::vector<ringd_operation> tickets = rank.HoldAll();
      rank.Wait();
      // On a busy machine some steps are given up, at all ranks alike; too many in a row are not held for a while.
      if (std::any_of(tickets.begin(), tickets.end(), [](auto ticket) { return ticket == 0; }))
        break;
      const auto first = rank.operations().Find(tickets[0]);
      const bool done = first.ok() && *first == RINGD_DONE;
      carried += done ? 1 : 0;
      for (std::size_t i = 0; i < counts.size(); ++i) {
        const auto found = rank.operations().Find(tickets[i]);
        if (!found.ok() || (*found == RINGD_DONE) != done) ++wrong;
        for (std::size_t e = 0; done && e < counts[i]; ++e) {
          double sum = 0;
          for (std::size_t other = 0; other < job.size(); ++other) {
            sum += prescale *
                   static_cast<double>(Values<T>(counts[i], other, step + static_cast<int>(i))[e]);
          }
          if (op == ReduceOp::kAverage) sum /= static_cast<double>(job.size());
          expected[i][e] = static_cast<T>(postscale * sum);
        }
        rank.operations().Forget(tickets[i]);
      }
      if (data != expected) ++wrong;
    }
  });
  CHECK(wrong == 0);
  CHECK(carried > 0);
  CHECK(carried % job.size() == 0);
  std::uint64_t bytes = 0;
  for (const std::size_t count : counts) bytes += count * sizeof(T);
  for (std::size_t rank = 0; rank < job.size(); ++rank) {
    CHECK_FALSE(job[rank].learned_early());
    // One operation, however many tensors.
    CHECK(job[rank].member().completed == static_cast<std::uint64_t>(carried) / job.size());
    CHECK(job[rank].member().bytes == bytes * job[rank].member().completed);
    CHECK(job[rank].member().held_since_ns == 0);
  }
}

TEST_CASE(
    "TailOperations: what is held is carried out together, each tensor's result in its place") {
  SECTION("float32") {
    SumsAreRight<float>(DataType::kFloat32, ReduceOp::kSum, 1, 1, {5, 1, 1500});
  }
  SECTION("float64, averaged and scaled") {
    SumsAreRight<double>(DataType::kFloat64, ReduceOp::kAverage, 0.5, 3, {2, 3, 4});
  }
  SECTION("float32, averaged") {
    SumsAreRight<float>(DataType::kFloat32, ReduceOp::kAverage, 1, 1, {7, 1});
  }
  SECTION("int64, sixteen of them") {
    SumsAreRight<std::int64_t>(DataType::kInt64, ReduceOp::kSum, 1, 1,
                               std::vector<std::size_t>(StepTail::kMostTensors, 3));
  }
  SECTION("int32, one with nothing in it") {
    SumsAreRight<std::int32_t>(DataType::kInt32, ReduceOp::kSum, 1, 1, {1, 0, 2});
  }
  SECTION("bytes, of odd lengths") {
    SumsAreRight<std::uint8_t>(DataType::kUint8, ReduceOp::kSum, 1, 1, {1, 3, 5, 7, 11});
  }
  SECTION("one alone, of all that there is room for") {
    SumsAreRight<float>(DataType::kFloat32, ReduceOp::kSum, 1, 1, {kFastPathMostBytes / 4});
  }
}

// Each rank ends its step with a list of its own; all hold theirs and wait at once.
void NothingIsMixed(const std::function<void(std::size_t, TailRank&, std::array<float, 2>&)>& add) {
  TailJob job(2);
  std::array<std::array<float, 2>, 2> data = {{{1, 2}, {10, 20}}};
  std::array<std::vector<ringd_operation>, 2> tickets;
  std::barrier begin(2);
  job.job.OnAll([&](std::size_t r) {
    add(r, job[r], data[r]);
    job[r].Learn();
    tickets[r] = job[r].HoldAll();
    begin.arrive_and_wait();
    job[r].Wait();
  });
  CHECK(data == std::array<std::array<float, 2>, 2>{{{1, 2}, {10, 20}}});
  for (std::size_t rank = 0; rank < 2; ++rank) {
    CHECK(job[rank].member().completed == 0);
    CHECK(job[rank].member().given_up == 1);
    CHECK(job[rank].submitted().size() == tickets[rank].size());
    for (const Submitted& entry : job[rank].submitted()) CHECK(entry.counted);
    for (std::size_t i = 0; i < tickets[rank].size(); ++i) {
      REQUIRE(tickets[rank][i] != 0);
      CHECK(FoundBy(job[rank], tickets[rank][i]) == i + 1);
    }
  }
}

TEST_CASE("TailOperations: ranks that hold different tensors do not add them up") {
  const TensorDescription a = Reduction("a", DataType::kFloat32, ReduceOp::kSum, 1);
  const TensorDescription b = Reduction("b", DataType::kFloat32, ReduceOp::kSum, 1);
  const TensorDescription both = Reduction("a", DataType::kFloat32, ReduceOp::kSum, 2);
  SECTION("in another order") {
    NothingIsMixed([&](std::size_t r, TailRank& rank, auto& data) {
      rank.Add(r == 0 ? a : b, &data[0]);
      rank.Add(r == 0 ? b : a, &data[1]);
    });
  }
  SECTION("two, or one of the same size") {
    NothingIsMixed([&](std::size_t r, TailRank& rank, auto& data) {
      if (r == 1) return rank.Add(both, &data[0]);
      rank.Add(a, &data[0]);
      rank.Add(b, &data[1]);
    });
  }
  SECTION("one more or less") {
    NothingIsMixed([&](std::size_t r, TailRank& rank, auto& data) {
      rank.Add(a, &data[0]);
      if (r == 0) rank.Add(b, &data[1]);
    });
  }
  SECTION("of which one was submitted once more before") {
    NothingIsMixed([&](std::size_t r, TailRank& rank, auto& data) {
      rank.Add(a, &data[0]);
      rank.Add(b, &data[1]);
      if (r == 1) static_cast<void>(rank.Hold(1));
    });
  }
}

TEST_CASE(
    "TailOperations: whoever comes between, each submission has one end, and sums are whole") {
  constexpr int kSteps = 25;
  TailJob job(2);
  std::atomic<int> wrong{0};
  std::array<std::atomic<std::size_t>, 2> went_to_ringd{};
  job.job.OnAll([&](std::size_t r) {
    TailRank& rank = job[r];
    std::array<std::int32_t, 2> data{};
    rank.Add(Reduction("a", DataType::kInt32, ReduceOp::kSum, 1), &data[0]);
    rank.Add(Reduction("b", DataType::kInt32, ReduceOp::kSum, 1), &data[1]);
    std::atomic<bool> stop{false};
    std::thread other([&] {
      for (int i = 0; !stop; ++i) {
        std::this_thread::sleep_for(milliseconds(1 + 4 * r));
        if (i % 2 == 0) rank.operations().Release();
        if (i % 16 == 1) rank.operations().BeginTest();
        if (i % 16 == 9) rank.Wait();
      }
    });
    for (std::int32_t step = 1; step <= kSteps; ++step) {
      data = {step, 100 * step};
      const std::vector<ringd_operation> tickets = rank.HoldAll();
      if (step % 3 == 0) std::this_thread::sleep_for(milliseconds(2));
      rank.Wait();
      for (std::size_t i = 0; i < tickets.size(); ++i) {
        if (tickets[i] == 0) continue;
        const auto found = rank.operations().Find(tickets[i]);
        if (!found.ok() || *found == 0) ++wrong;
        const bool carried = found.ok() && *found == RINGD_DONE;
        if (!carried) ++went_to_ringd[r];
        const std::int32_t own = i == 0 ? step : 100 * step;
        if (data[i] != (carried ? 2 * own : own)) ++wrong;
        rank.operations().Forget(tickets[i]);
      }
    }
    stop = true;
    other.join();
  });
  CHECK(wrong == 0);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    CHECK(job[rank].submitted().size() == went_to_ringd[rank]);
    CHECK(job[rank].member().held_since_ns == 0);
  }
  CHECK(job[0].member().completed == job[1].member().completed);
}

}  // namespace
}  // namespace ringd::client
