#include "backends/tcp/line_turn.h"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tests/backends/tcp/line_world.h"

namespace ringd {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kLine = 5;
constexpr std::size_t kFrame = 128 * 1024;

// Engines on one line, and a clock.
struct Engines {
  explicit Engines(const std::vector<std::uint32_t>& weights) {
    for (std::size_t slot = 0; slot < weights.size(); ++slot) {
      world.AddEngine(slot, weights[slot]);
      Restart(slot);
    }
    sent.resize(weights.size());
  }
  // A process that knows nothing of what was before.
  void Restart(std::size_t slot) {
    turns.resize(std::max(turns.size(), slot + 1));
    turns[slot] = std::make_unique<LineTurn>(world.roster(), world.tags(), slot, kLine);
  }
  // Sends a frame if it is its turn.
  bool Try(std::size_t slot) {
    if (!turns[slot]->IsOwn(now)) return false;
    turns[slot]->Charge(kFrame);
    ++sent[slot];
    return true;
  }
  // All of `who` in turn, so many times; a round takes 1 ms.
  void Rounds(int count, const std::vector<std::size_t>& who) {
    for (int i = 0; i < count; ++i) {
      for (const std::size_t slot : who) Try(slot);
      now += milliseconds(1);
    }
  }
  std::atomic<std::uint64_t>& tag(std::size_t slot) { return world.tags().tags[kLine].of[slot]; }

  LineWorld world;
  std::vector<std::unique_ptr<LineTurn>> turns;
  std::vector<int> sent;
  Clock::time_point now{std::chrono::hours(1)};
};

TEST_CASE("LineTurn: engines that always want the line get it by their weights") {
  Engines engines({3, 1, 2});
  for (auto& turn : engines.turns) turn->Begin();
  engines.Rounds(3000, {0, 1, 2});
  CHECK(engines.sent[0] == Approx(3000).margin(3));
  CHECK(engines.sent[1] == Approx(1000).margin(3));
  CHECK(engines.sent[2] == Approx(2000).margin(3));
  CHECK(engines.turns[1]->part() == Approx(1.0 / 6));
}

TEST_CASE("LineTurn: who is alone has it to itself, and owes nothing for that") {
  Engines engines({1, 1});
  engines.turns[0]->Begin();
  CHECK_FALSE(engines.turns[0]->OthersWant());
  engines.Rounds(1000, {0});
  CHECK(engines.sent[0] == 1000);
  engines.turns[1]->Begin();
  CHECK(engines.turns[0]->OthersWant());
  engines.Rounds(100, {0, 1});
  CHECK(engines.sent[0] == Approx(1100).margin(2));
  CHECK(engines.sent[1] == Approx(100).margin(2));
  engines.turns[0]->End();
  engines.Rounds(1000, {1});
  engines.turns[0]->Begin();
  engines.Rounds(100, {0, 1});
  CHECK(engines.sent[0] == Approx(1200).margin(4));
}

TEST_CASE("LineTurn: two that begin at once without having seen each other are even at once") {
  Engines engines({1, 1});
  engines.turns[0]->Begin();
  engines.turns[1]->Begin();
  engines.tag(0) = 0;
  engines.tag(1) = std::uint64_t{1} << 50;
  engines.turns[1]->IsOwn(engines.now);
  engines.turns[0]->IsOwn(engines.now);
  engines.Rounds(100, {0, 1});
  CHECK(engines.sent[0] == Approx(100).margin(3));
  CHECK(engines.sent[1] == Approx(100).margin(3));
}

TEST_CASE("LineTurn: an engine that has stopped costs the others its patience once") {
  Engines engines({1, 1, 1});
  for (auto& turn : engines.turns) turn->Begin();
  engines.Rounds(10, {0, 1, 2});
  const int before = engines.sent[0];
  engines.Rounds(LineTurn::kPatience.count(), {0, 1});  // 2 has stopped
  CHECK(engines.sent[0] <= before + 2);
  engines.Rounds(1000, {0, 1});
  CHECK(engines.sent[0] > before + 990);
  CHECK(engines.sent[1] == Approx(engines.sent[0]).margin(2));

  // When it goes on it has its share again, and nothing on top.
  engines.sent = {0, 0, 0};
  engines.Rounds(300, {0, 1, 2});
  CHECK(engines.sent[2] == Approx(300).margin(4));
  CHECK(engines.sent[0] == Approx(300).margin(4));
}

TEST_CASE("LineTurn: an engine that the supervisor has taken out of the roster holds up nobody") {
  Engines engines({1, 1});
  engines.turns[0]->Begin();
  engines.turns[1]->Begin();
  engines.Rounds(10, {0});
  CHECK(engines.sent[0] <= 2);
  engines.world.roster().engines.set.Remove(1);
  CHECK_FALSE(engines.turns[0]->OthersWant());
  engines.sent[0] = 0;
  engines.Rounds(10, {0});
  CHECK(engines.sent[0] == 10);
}

TEST_CASE("LineTurn: the next engine of a slot begins where the others are") {
  Engines engines({1, 1});
  engines.turns[0]->Begin();
  engines.turns[1]->Begin();
  engines.tag(1) = std::uint64_t{1} << 60;  // of the one that was here before
  engines.Restart(1);
  engines.turns[1]->Begin();
  engines.Rounds(200, {0, 1});
  CHECK(engines.sent[0] == Approx(200).margin(3));
  CHECK(engines.sent[1] == Approx(200).margin(3));
}

TEST_CASE("LineTurn: wherever tags have got to, and however they wrap, shares are the same") {
  Engines engines({3, 1});
  const std::uint64_t start = GENERATE(0ull, ~0ull - 100, 1ull << 63, (1ull << 63) - 5);
  engines.turns[0]->Begin();
  engines.tag(0) = start;
  engines.turns[1]->Begin();
  engines.Rounds(300, {0, 1});
  CHECK(engines.sent[0] == Approx(300).margin(3));
  CHECK(engines.sent[1] == Approx(100).margin(3));
}

TEST_CASE("LineTurn: rubbish in the segments gives no more than rubbish turns") {
  Engines engines({1, 1, 0});
  engines.turns[0]->Begin();
  engines.turns[1]->Begin();
  for (auto& word : engines.world.tags().wanting[kLine].set.words) word = ~0ull;
  engines.world.roster().weights[1] = 0xffffffff;
  std::uint64_t rubbish = 12345;
  for (int i = 0; i < 10000; ++i) {
    rubbish = rubbish * 6364136223846793005 + 1442695040888963407;
    engines.tag(rubbish % 3) = rubbish;
    engines.Rounds(1, {0, 1});
  }
  // Another clears this engine's bit: it says again that it wants the line.
  engines.world.tags().wanting[kLine].set.Remove(0);
  engines.Rounds(1, {0});
  CHECK(engines.world.tags().wanting[kLine].set.Has(0));
  // Then all are honest again.
  engines.world.roster().weights[1] = 1;
  engines.world.tags().wanting[kLine].set.Remove(2);
  engines.sent = {0, 0, 0};
  engines.Rounds(200, {0, 1});
  CHECK(engines.sent[0] == Approx(200).margin(4));
  CHECK(engines.sent[1] == Approx(200).margin(4));
}

TEST_CASE("LineTurn: several users of one engine on a line want it until the last has ended") {
  Engines engines({1, 1});
  engines.turns[0]->Begin();
  engines.turns[0]->Begin();
  engines.turns[0]->End();
  CHECK(engines.turns[1]->OthersWant());
  engines.turns[0]->End();
  CHECK_FALSE(engines.turns[1]->OthersWant());
}

}  // namespace
}  // namespace ringd
