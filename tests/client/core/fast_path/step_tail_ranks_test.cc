// That ranks hold the same tensors without a word.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "client/core/fast_path/step_tail.h"
#include "tests/client/core/fast_path/step_rounds.h"

namespace ringd::client {
namespace {

TEST_CASE("StepTail: a rank that releases and one that gives up hold again in the same round") {
  // The rounds have to be counted: each has its own tensors.
  std::array<Tensors, 2> tensors;
  std::array<StepTail, 2> tails = {StepTail(kLimit), StepTail(kLimit)};
  std::array<Round, 2> rounds;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    rounds[rank] = {&tensors[rank].Add(kLarge), &tensors[rank].Add(8)};
  }
  const auto count = [&](std::size_t rank) {
    for (Registration* tensor : rounds[rank]) tensor->submissions.Accepted();
  };
  const auto play = [&](std::size_t rank) {
    const Seen seen = Play(tails[rank], rounds[rank]);
    count(rank);
    return seen;
  };
  const int before = GENERATE(range(0, 8));
  const bool looked = GENERATE(false, true);
  for (int i = 0; i < StepTail::kAlike + before; ++i) {
    CHECK(play(0) == play(1));
  }
  // Rank 0 releases what it holds, perhaps since it looks at an operation; rank 1 goes on alone.
  REQUIRE_FALSE(tails[0].OnSubmit(*rounds[0][0]));
  REQUIRE(tails[0].OnSubmit(*rounds[0][1]));
  if (looked) tails[0].OnTest();
  tails[0].OnReleased();
  CHECK_FALSE(tails[0].OnWait());
  count(0);
  CHECK(play(1) == Whole(1));
  tails[1].OnGivenUp(*rounds[1].back());
  std::uint64_t alone = 0;
  for (std::uint64_t i = 0; i < 2 * StepTail::kAgainAt; ++i) {
    const std::array<Seen, 2> seen = {play(0), play(1)};
    if (seen[0] == seen[1]) continue;
    ++alone;
    tails[seen[0].whole ? 0 : 1].OnGivenUp(*rounds[seen[0].whole ? 0 : 1].back());
  }
  CHECK(alone <= 1);
  CHECK(play(0) == Whole(1));
  CHECK(play(1) == Whole(1));
}

TEST_CASE("StepTail: ranks that make the same calls hold the same, whatever they are") {
  const auto seed = static_cast<std::uint32_t>(std::random_device()());
  INFO("seed " << seed);
  std::mt19937 dice(seed);
  const auto roll = [&dice](std::size_t sides) { return dice() % sides; };
  constexpr std::size_t kRanks = 2;
  std::array<Tensors, kRanks> tensors;
  std::array<std::vector<Registration*>, kRanks> all;
  std::array<StepTail, kRanks> tails = {StepTail(kLimit), StepTail(kLimit)};
  const std::uint64_t sizes[] = {kLarge, 4, 0, 4, 8, 100, 2000, 4096, 8192, 8193, kLarge};
  for (int i = 0; i < 24; ++i) {
    const std::uint64_t bytes = sizes[i < 6 ? std::min(i, 1) : roll(std::size(sizes))];
    const auto type = i > 5 && roll(4) == 0 ? DataType::kInt8 : DataType::kUint8;
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      all[rank].push_back(
          &tensors[rank].Add(Reduction("t" + std::to_string(i), type, ReduceOp::kSum, bytes)));
    }
  }
  std::vector<std::vector<std::size_t>> kinds(5);
  for (auto& kind : kinds) {
    // A large one, some others, and a small one of its own.
    kind.push_back(0);
    for (std::size_t more = roll(20); more > 0; --more) kind.push_back(6 + roll(all[0].size() - 6));
    if (&kind == kinds.data()) kind.push_back(0);  // its tail is that one
    kind.push_back(static_cast<std::size_t>(&kind - kinds.data()) + 1);
  }
  std::size_t differ = 0;
  std::size_t whole = 0;
  std::size_t beyond = 0;
  for (int round = 0; round < 3000; ++round) {
    auto order = kinds[roll(round % 100 < 80 ? 2 : kinds.size())];
    if (roll(12) == 0) std::swap(order[roll(order.size())], order[roll(order.size())]);
    if (roll(12) == 0) order.pop_back();
    const bool tested = roll(20) == 0;
    const std::size_t tested_at = roll(order.size() + 1);
    std::array<std::vector<bool>, kRanks> decided;
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      StepTail& tail = tails[rank];
      std::uint64_t bytes = 0;
      for (std::size_t i = 0; i < order.size(); ++i) {
        if (tested && i == tested_at) {
          tail.OnTest();
          if (tail.held() > 0) tail.OnReleased();
        }
        Registration& tensor = *all[rank][order[i]];
        decided[rank].push_back(tail.OnSubmit(tensor));
        bytes = decided[rank].back() ? bytes + tensor.bytes : 0;
        if (!decided[rank].back() && tail.held() > 0) tail.OnReleased();
        if (bytes > kLimit || tail.held() > StepTail::kMostTensors) ++beyond;
      }
      decided[rank].push_back(tail.OnWait());
      whole += decided[rank].back() ? 1 : 0;
      if (!decided[rank].back() && tail.held() > 0) tail.OnReleased();
      if (tail.held() != 0) ++beyond;
    }
    if (decided[0] != decided[1]) ++differ;
  }
  CHECK(differ == 0);
  CHECK(beyond == 0);
  CHECK(whole > 100);
}

}  // namespace
}  // namespace ringd::client
