// Remotes of two engines that share the way to a node.
#include <catch2/catch.hpp>
#include <cstdint>
#include <memory>
#include <utility>

#include "backends/tcp/line_shares.h"
#include "backends/tcp/tcp_remote.h"
#include "proto/base/clock.h"
#include "tests/backends/tcp/line_job.h"
#include "tests/backends/tcp/line_world.h"

namespace ringd {
namespace {

constexpr FrameScope kFirst{.wire_id = 1, .peer = 1, .self = 0};
constexpr FrameScope kSecond{.wire_id = 2, .peer = 1, .self = 0};

// Two engines, of weights 3 and 1, each with a job on the same line.
struct TwoEngines {
  TwoEngines() {
    world.AddEngine(0, 3);
    world.AddEngine(1, 1);
  }
  void Turn() {
    for (Ground* const ground : {&heavy_ground, &light_ground}) {
      ground->remote.Tick(Clock::now());
      ground->Turn();
    }
  }

  LineWorld world;
  std::unique_ptr<LineShares> heavy_shares = world.Shares(0);
  std::unique_ptr<LineShares> light_shares = world.Shares(1);
  Ground heavy_ground{&heavy_shares->TurnTo("10.0.0.2")};
  Ground light_ground{&light_shares->TurnTo("10.0.0.2")};
};

TEST_CASE("TcpRemote: jobs of two engines get bytes of a way that both fill by their weights") {
  TwoEngines engines;
  Job heavy(engines.heavy_ground, kFirst);
  Job light(engines.light_ground, kSecond);
  FarEnd heavy_end(heavy.line);
  FarEnd light_end(light.line);
  std::uint64_t heavy_bytes = 0;
  std::uint64_t light_bytes = 0;
  bool light_was_held = false;
  REQUIRE(engines.heavy_ground.RunUntil([&] {
    engines.Turn();
    heavy.Refill();
    light.Refill();
    heavy_bytes += heavy_end.Read(16 * 1024);
    light_bytes += light_end.Read(16 * 1024);
    if (light.outstanding == 4 && light.line.CanBeginBulk() &&
        engines.light_ground.remote.deadline().has_value()) {
      // It sleeps until then.
      light_was_held = light_was_held || !engines.light_ground.remote.CanAdvance();
    }
    return heavy_bytes + light_bytes > 100 << 20;
  }));
  const double ratio = static_cast<double>(heavy_bytes) / static_cast<double>(light_bytes);
  CHECK(ratio > 2.4);
  CHECK(ratio < 3.6);
  CHECK(light_was_held);
}

TEST_CASE("TcpRemote: a job that leaves, or waits for its socket alone, leaves the way to others") {
  TwoEngines engines;
  auto stuck = std::make_unique<Job>(engines.heavy_ground, kFirst);
  Job other(engines.light_ground, kSecond);
  auto stuck_end = std::make_unique<FarEnd>(stuck->line);
  FarEnd other_end(other.line);
  // Until its socket takes nothing more.
  std::uint64_t before = UINT64_MAX;
  REQUIRE(engines.heavy_ground.RunUntil([&] {
    stuck->Refill();
    const bool still = std::exchange(before, stuck->sent_bytes) == stuck->sent_bytes;
    return still && stuck->sent_bytes > 0 && !stuck->line.CanBeginBulk();
  }));
  engines.Turn();
  CHECK(engines.light_shares->TurnTo("10.0.0.2").OthersWant());
  SECTION("its other end has stopped reading") {}
  SECTION("it has been withdrawn and has left") {
    stuck->line.Withdraw(stuck.get());
    stuck.reset();
    engines.Turn();
    CHECK_FALSE(engines.light_shares->TurnTo("10.0.0.2").OthersWant());
  }
  std::uint64_t bytes = 0;
  CHECK(engines.light_ground.RunUntil([&] {
    engines.Turn();
    other.Refill();
    bytes += other_end.Read(64 * 1024);
    return bytes > 20 << 20;
  }));
}

}  // namespace
}  // namespace ringd
