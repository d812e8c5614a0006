#include "backends/tcp/line_gate.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <utility>

#include "backends/tcp/line_shares.h"
#include "tests/backends/tcp/line_world.h"

namespace ringd {
namespace {

using std::chrono::microseconds;

constexpr std::size_t kFrame = 128 * 1024;

struct FakeConnections final : LineGate::Connections {
  microseconds BusyTime() const noexcept override { return busy; }
  microseconds busy{0};
};

// This engine and one that says what it likes.
struct Pair {
  Pair() {
    world.AddEngine(0, 1);
    world.AddEngine(1, 1);
    other.Begin();
  }

  // What the other one says: that it has had nothing, or a little.
  void Lie() {
    lie ^= 1;
    world.tags().tags[LineOf("host")].of[1] = lie;
  }

  LineWorld world;
  std::unique_ptr<LineShares> shares = world.Shares(0);
  std::unique_ptr<LineShares> other_shares = world.Shares(1);
  LineTurn& other = other_shares->TurnTo("host");
  FakeConnections connections;
  LineGate gate{shares->TurnTo("host"), connections};
  std::uint64_t lie = 0;
};

TEST_CASE("LineGate: who is gated looks again, soon at first, and then within 2 ms") {
  Pair pair;
  pair.gate.SetWants(true);
  CHECK_FALSE(pair.gate.look_at().has_value());
  Clock::time_point now = Clock::now();
  while (pair.gate.MayBegin(now)) pair.gate.Charge(kFrame);
  REQUIRE(pair.gate.is_gated());
  Clock::duration wait = LineGate::kFirstLook;
  for (int i = 0; i < 20; ++i) {
    CHECK(*pair.gate.look_at() == now + wait);
    CHECK_FALSE(pair.gate.MayBegin(*pair.gate.look_at() - microseconds(1)));
    now = *pair.gate.look_at();
    REQUIRE_FALSE(pair.gate.MayBegin(now));
    wait = std::min<Clock::duration>(2 * wait, LineGate::kLastLook);
  }
  CHECK(wait == LineGate::kLastLook);
  pair.other.End();
  CHECK(pair.gate.MayBegin(now));  // at once, whenever it was to look
  CHECK_FALSE(pair.gate.is_gated());
}

TEST_CASE("LineGate: whatever others write, an engine gets a quarter of its part of the time") {
  Pair pair;
  pair.gate.SetWants(true);
  // A frame keeps its connection busy for 1 ms.
  constexpr microseconds kBusy{1000};
  const Clock::time_point begin = Clock::now();
  Clock::time_point now = begin;
  while (now < begin + std::chrono::seconds(10)) {
    pair.Lie();
    if (pair.gate.MayBegin(now)) {
      pair.gate.Charge(kFrame);
      pair.connections.busy += kBusy;
      now += kBusy;
    } else {
      now = *pair.gate.look_at();
    }
  }
  const double busy = std::chrono::duration<double>(pair.connections.busy).count();
  const double time = std::chrono::duration<double>(now - begin).count();
  CHECK(busy / time > 0.8 * LineGate::kFloor / 2);
  CHECK(busy / time < 1.2 * LineGate::kFloor / 2);
}

TEST_CASE("LineGate: the line counts as shared for a while after another has wanted it") {
  Pair pair;
  CHECK(pair.gate.OthersWant());
  pair.gate.NoteContention();
  CHECK(pair.gate.is_contended());
  pair.gate.SetWants(true);
  CHECK_FALSE(pair.gate.Tick(Clock::now()));
  CHECK_FALSE(pair.gate.Tick(*pair.gate.deadline()));  // it is still so
  CHECK(pair.gate.is_contended());
  pair.other.End();
  CHECK(pair.gate.Tick(*pair.gate.deadline()));
  CHECK_FALSE(pair.gate.is_contended());
  CHECK_FALSE(pair.gate.deadline().has_value());
}

TEST_CASE("LineGate: a gate that goes wants nothing any more") {
  Pair pair;
  {
    FakeConnections connections;
    LineGate gate(pair.shares->TurnTo("host"), connections);
    gate.SetWants(true);
    CHECK(pair.other.OthersWant());
  }
  CHECK_FALSE(pair.other.OthersWant());
}

TEST_CASE("LineShares: descriptors of something else are refused") {
  LineWorld world;
  const auto other = CreateSealedMemfd("other", sizeof(LineTagsSegment));
  REQUIRE(other.ok());
  const int roster = world.roster_memory.fd.get();
  const int tags = world.tags_fd.get();
  CHECK(LineShares::Open(roster, tags, kMostEngines - 1).ok());
  CHECK(absl::IsInvalidArgument(LineShares::Open(roster, tags, kMostEngines).status()));
  CHECK(absl::IsInvalidArgument(LineShares::Open(other->get(), tags, 0).status()));
  CHECK_FALSE(LineShares::Open(roster, roster, 0).ok());  // too short, and can't be written
  world.roster().version = 9;
  CHECK(absl::IsInvalidArgument(LineShares::Open(roster, tags, 0).status()));
}

}  // namespace
}  // namespace ringd
