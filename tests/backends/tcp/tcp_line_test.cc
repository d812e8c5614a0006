// Lines and the remote that they share, over sockets whose other ends are the test's.
#include "backends/tcp/tcp_line.h"

#include <sys/socket.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backends/tcp/tcp_remote.h"
#include "proto/base/clock.h"
#include "tests/backends/tcp/line_job.h"
#include "tests/backends/tcp_pair.h"

namespace ringd {
namespace {

using Catch::Matchers::Contains;

constexpr FrameScope kFirst{.wire_id = 1, .peer = 1, .self = 0};
constexpr FrameScope kSecond{.wire_id = 2, .peer = 1, .self = 0};

TEST_CASE("TcpRemote: two jobs get bytes of a way that both fill by their weights") {
  Ground ground;
  Job heavy(ground, kFirst, {.weight = 3});
  Job light(ground, kSecond);
  FarEnd heavy_end(heavy.line);
  FarEnd light_end(light.line);
  // The way carries what either has, so if both filled their sockets they would get the same.
  std::uint64_t heavy_bytes = 0;
  std::uint64_t light_bytes = 0;
  REQUIRE(ground.RunUntil([&] {
    heavy.Refill();
    light.Refill();
    heavy_bytes += heavy_end.Read(16 * 1024);
    light_bytes += light_end.Read(16 * 1024);
    return heavy_bytes + light_bytes > 100 << 20;
  }));
  const double ratio = static_cast<double>(heavy_bytes) / static_cast<double>(light_bytes);
  CHECK(ratio > 2.85);
  CHECK(ratio < 3.15);
}

TEST_CASE("TcpRemote: the lines of one job's communicators have its share together") {
  Ground ground;
  constexpr std::uint64_t kOfMany = 3;
  std::vector<std::unique_ptr<Job>> lines;
  std::vector<std::unique_ptr<FarEnd>> ends;
  for (std::uint64_t i = 0; i <= kOfMany; ++i) {
    const LineShare share{.id = i < kOfMany ? 7u : 8u, .weight = 2};
    lines.push_back(std::make_unique<Job>(ground, FrameScope{i + 1, 1, 0}, share));
    ends.push_back(std::make_unique<FarEnd>(lines.back()->line));
  }
  std::vector<std::uint64_t> bytes(lines.size());
  REQUIRE(ground.RunUntil([&] {
    for (std::size_t i = 0; i < lines.size(); ++i) {
      lines[i]->Refill();
      bytes[i] += ends[i]->Read(16 * 1024);
    }
    return bytes.back() > 50 << 20;
  }));
  for (std::size_t i = 0; i < kOfMany; ++i) {
    const double part = static_cast<double>(bytes[i]) / static_cast<double>(bytes.back());
    CHECK(part > 0.95 / kOfMany);
    CHECK(part < 1.05 / kOfMany);
  }
}

TEST_CASE("TcpRemote: a job alone has the way to itself") {
  Ground ground;
  Job busy(ground, kFirst);
  Job silent(ground, kSecond, {.weight = 100});
  FarEnd busy_end(busy.line);
  FarEnd silent_end(silent.line);
  std::uint64_t bytes = 0;
  CHECK(ground.RunUntil([&] {
    busy.Refill();
    bytes += busy_end.Read(64 * 1024);
    return bytes > 20 << 20;
  }));
}

TEST_CASE("TcpRemote: whose other end stops reading is set aside, and comes back when it reads") {
  Ground ground;
  Job stuck(ground, kFirst);
  Job other(ground, kSecond);
  FarEnd stuck_end(stuck.line);
  FarEnd other_end(other.line);
  // Until its socket takes nothing more.
  std::uint64_t before = UINT64_MAX;
  REQUIRE(ground.RunUntil([&] {
    stuck.Refill();
    const bool still = std::exchange(before, stuck.sent_bytes) == stuck.sent_bytes;
    return still && ground.remote.deadline().has_value();
  }));
  other.Refill();
  for (int i = 0; i < 100; ++i) ground.Turn();
  CHECK(other.sent_bytes == 0);  // it is patient for a while
  ground.remote.Tick(Clock::now());
  CHECK(ground.remote.deadline().has_value());
  ground.remote.Tick(Clock::now() + TcpRemote::kPatience);
  CHECK_FALSE(ground.remote.deadline().has_value());

  std::uint64_t bytes = 0;
  REQUIRE(ground.RunUntil([&] {
    other.Refill();
    bytes += other_end.Read(64 * 1024);
    return bytes > 20 << 20;
  }));
  const std::uint64_t sent = stuck.sent_bytes;
  std::uint64_t of_stuck = 0;
  CHECK(ground.RunUntil([&] {
    stuck.Refill();
    other.Refill();
    of_stuck += stuck_end.Read(64 * 1024);
    other_end.Read(64 * 1024);
    return stuck.sent_bytes > sent + (10 << 20);
  }));
}

TEST_CASE("TcpRemote: a job that goes while others wait for it holds nobody up") {
  Ground ground;
  auto stuck = std::make_unique<Job>(ground, kFirst);
  Job other(ground, kSecond);
  auto stuck_end = std::make_unique<FarEnd>(stuck->line);
  FarEnd other_end(other.line);
  REQUIRE(ground.RunUntil([&] {
    stuck->Refill();
    return ground.remote.deadline().has_value();
  }));
  SECTION("by itself") {
    stuck->line.Withdraw(stuck.get());
    CHECK(stuck->outstanding == 0);
    stuck.reset();
  }
  SECTION("because it is lost") {
    stuck_end->Hang();
    REQUIRE(ground.RunUntil([&] { return stuck->failed; }));
    stuck->line.Shut();
    CHECK(stuck->outstanding == 0);
  }
  std::uint64_t bytes = 0;
  CHECK(ground.RunUntil([&] {
    other.Refill();
    bytes += other_end.Read(64 * 1024);
    return bytes > 5 << 20;
  }));
}

// Two lines of one job, one at each end, and the connections between them.
struct BothEnds {
  void Connect(std::uint32_t stream, bool by_this, bool this_end = true, bool that_end = true) {
    pairs.push_back(std::make_unique<TcpPair>());
    if (this_end) here.line.Adopt(std::move(pairs.back()->one), stream, by_this);
    if (that_end) there.line.Adopt(std::move(pairs.back()->other), stream, !by_this);
  }
  void Turn() {
    near.Turn();
    far.Turn();
  }
  bool RunUntil(const std::function<bool()>& done) {
    return near.RunUntil([&] {
      far.Turn();
      return done();
    });
  }

  Ground near;
  Ground far;
  Job here{near, {.wire_id = 9, .peer = 1, .self = 0}};
  Job there{far, {.wire_id = 9, .peer = 0, .self = 1}};
  std::vector<std::unique_ptr<TcpPair>> pairs;
};

TEST_CASE("TcpLine: what is sent before there are connections leaves when they are there") {
  BothEnds ends;
  CHECK_FALSE(ends.here.Send(SendPriority::kUrgent));
  CHECK_FALSE(ends.here.Send());
  ends.Connect(0, true);
  for (int i = 0; i < 100; ++i) ends.Turn();
  CHECK(ends.there.received == 0);  // not half of a set
  CHECK(ends.here.line.Describe().connections == 0);
  ends.Connect(1, true);
  CHECK(ends.RunUntil([&] { return ends.there.received == 2 && ends.here.outstanding == 0; }));
  CHECK(ends.here.line.Describe().connections == 2);
  CHECK(ends.here.line.Describe().bulk_connections == 1);
  CHECK(ends.here.line.Describe().transports == "tcp/lo");
}

TEST_CASE("TcpLine: when both have dialled each sends on what it had first, and hears all") {
  BothEnds ends;
  // Each has its own set at first.
  for (const bool by_this : {true, false}) {
    for (std::uint32_t stream = 0; stream < 2; ++stream)
      ends.Connect(stream, by_this, by_this, !by_this);
  }
  for (int i = 0; i < 2; ++i) {
    ends.there.line.Adopt(std::move(ends.pairs[static_cast<std::size_t>(i)]->other),
                          static_cast<std::uint32_t>(i), false);
    ends.here.line.Adopt(std::move(ends.pairs[static_cast<std::size_t>(i) + 2]->one),
                         static_cast<std::uint32_t>(i), false);
  }
  for (int i = 0; i < 20; ++i) {
    const SendPriority priority = i % 2 == 0 ? SendPriority::kUrgent : SendPriority::kBulk;
    ends.here.Send(priority);
    ends.there.Send(priority);
  }
  CHECK(ends.RunUntil([&] { return ends.here.received == 20 && ends.there.received == 20; }));
  CHECK_FALSE(ends.here.failed);
  CHECK_FALSE(ends.there.failed);
}

TEST_CASE("TcpLine: several bulk connections share what there is") {
  BothEnds ends;
  for (std::uint32_t stream = 0; stream < 4; ++stream) ends.Connect(stream, true);
  int sent = 0;
  CHECK(ends.RunUntil([&] {
    for (; ends.here.outstanding < 8 && sent < 400; ++sent) ends.here.Send();
    return ends.there.received == 400;
  }));
  CHECK(ends.here.line.Describe().bulk_connections == 3);
}

TEST_CASE("TcpLine: a connection that no correct node opens is its failure") {
  BothEnds ends;
  std::string complaint;
  SECTION("twice the same") {
    ends.Connect(1, true);
    ends.Connect(1, true);
    complaint = "there already";
  }
  SECTION("a number that is none") {
    ends.Connect(TcpLine::kMaxStreams + 1, true);
    complaint = "is none";
  }
  REQUIRE(ends.there.failed);
  CHECK(absl::IsInternal(ends.there.line.failure()));
  CHECK_THAT(std::string(ends.there.line.failure().message()), Contains(complaint));
  CHECK(ends.there.Send());  // dropped
}

}  // namespace
}  // namespace ringd
