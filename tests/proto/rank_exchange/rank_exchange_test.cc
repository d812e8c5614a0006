#include "proto/rank_exchange/rank_exchange.h"

#include <sys/socket.h>

#include <array>
#include <catch2/catch.hpp>
#include <future>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/proto/rank_exchange/rank_exchange_nodes.h"

namespace ringd {
namespace {

using testing::AddPatiently;
using testing::CellsInUse;
using testing::DriveOnce;
using testing::Finish;
using testing::Floats;
using testing::kKey;
using testing::RankExchangeNodes;
using testing::ResultOf;

TEST_CASE("Signatures are those of FNV-1a") {
  const auto signature = [](std::string_view text) { return RankExchangeSignature(text); };
  CHECK(signature("") == 0xcbf29ce484222325);
  CHECK(signature("a") == 0xaf63dc4c8601ec8c);
  CHECK(signature("foobar") == 0x85944171f73967e8);
}

TEST_CASE("Two nodes add their numbers") {
  RankExchangeNodes nodes(2);
  std::uint32_t hub = 0;
  std::uint32_t other = 0;
  REQUIRE(nodes.Member(1).Contribute(Floats(kKey, {1, 2}), other) == RankExchangeOutcome::kPending);
  REQUIRE(nodes.Member(0).Contribute(Floats(kKey, {10, 20}), hub) == RankExchangeOutcome::kPending);
  CHECK(Finish(nodes.Member(0), hub) == RankExchangeOutcome::kCompleted);
  CHECK(Finish(nodes.Member(1), other) == RankExchangeOutcome::kCompleted);
  CHECK(ResultOf(nodes.Member(0), hub, 2) == std::vector<float>{11, 22});
  CHECK(ResultOf(nodes.Member(1), other, 2) == std::vector<float>{11, 22});
  for (std::uint32_t n = 0; n < 2; ++n) {
    CHECK(CellsInUse(nodes.View(n)) == 0);
    CHECK(nodes.View(n).control().completed.load() == 1);
  }
}

TEST_CASE("Without elements it is a barrier") {
  RankExchangeNodes nodes(2);
  RankExchangeContribution barrier;
  barrier.key = kKey;
  std::uint32_t hub = 0;
  std::uint32_t other = 0;
  REQUIRE(nodes.Member(0).Contribute(barrier, hub) == RankExchangeOutcome::kPending);
  DriveOnce(nodes.Member(0));
  CHECK(nodes.Member(0).Look(hub) == RankExchangeOutcome::kPending);
  REQUIRE(nodes.Member(1).Contribute(barrier, other) == RankExchangeOutcome::kPending);
  CHECK(Finish(nodes.Member(0), hub) == RankExchangeOutcome::kCompleted);
  CHECK(Finish(nodes.Member(1), other) == RankExchangeOutcome::kCompleted);
}

TEST_CASE("Local ranks are combined first, then nodes in their order") {
  // 1 + 2^-24 is 1 in float32, 2^-24 + 2^-24 is not lost: the order shows in the bits.
  constexpr float kTiny = 0x1p-24F;
  RankExchangeNodes nodes(2, 2);
  const std::vector<std::vector<float>> values = {{1}, {kTiny}, {kTiny}, {kTiny}};
  std::vector<std::uint32_t> cells(4);
  for (std::uint32_t rank = 4; rank-- > 0;) {
    REQUIRE(nodes.Member(rank / 2, rank % 2).Contribute(Floats(kKey, values[rank]), cells[rank]) ==
            RankExchangeOutcome::kPending);
  }
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    RankExchange& member = nodes.Member(rank / 2, rank % 2);
    REQUIRE(Finish(member, cells[rank]) == RankExchangeOutcome::kCompleted);
    const float expected = (1.0F + kTiny) + (kTiny + kTiny);
    CHECK(ResultOf(member, cells[rank], 1) == std::vector<float>{expected});
  }
}

TEST_CASE("Eight ranks on four nodes add, again and again") {
  constexpr std::uint32_t kNodes = 4;
  constexpr std::uint32_t kMembers = 2;
  constexpr std::uint64_t kSteps = 300;
  RankExchangeNodes nodes(kNodes, kMembers);
  std::vector<std::future<std::uint64_t>> wrong;
  for (std::uint32_t rank = 0; rank < kNodes * kMembers; ++rank) {
    wrong.push_back(std::async(std::launch::async, [&nodes, rank] {
      RankExchange& member = nodes.Member(rank / kMembers, rank % kMembers);
      std::uint64_t failures = 0;
      for (std::uint64_t step = 0; step < kSteps; ++step) {
        const std::vector<float> values(1 + step * 7 % 2048, static_cast<float>(rank + step));
        std::uint32_t cell = 0;
        if (!AddPatiently(member, step, values, cell)) return kSteps;
        const float sum = 28.0F + 8.0F * static_cast<float>(step);
        failures += ResultOf(member, cell, values.size()) == std::vector<float>(values.size(), sum)
                        ? 0U
                        : 1U;
      }
      return failures;
    }));
  }
  for (auto& failures : wrong) CHECK(failures.get() == 0);
  for (std::uint32_t n = 0; n < kNodes; ++n) CHECK(CellsInUse(nodes.View(n)) == 0);
}

TEST_CASE("Of a pair the driver is woken by what another rank of its node completes") {
  RankExchangeNodes nodes(2, 2);
  const std::uint32_t node = GENERATE(0U, 1U);
  std::uint32_t cells[2] = {};
  std::uint32_t first = 0;
  std::uint32_t second = 0;
  for (std::uint32_t m = 0; m < 2; ++m) {
    static_cast<void>(nodes.Member(1 - node, m).Contribute(Floats(kKey, {1}), cells[m]));
  }
  REQUIRE(nodes.Member(node, 0).Contribute(Floats(kKey, {1}), first) ==
          RankExchangeOutcome::kPending);
  DriveOnce(nodes.Member(node, 0));  // the other's input is there
  REQUIRE(nodes.Member(node, 0).BecomeDriver());
  std::thread sleeper([&] { nodes.Member(node, 0).Drive(std::chrono::milliseconds(60'000)); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(nodes.Member(node, 1).Contribute(Floats(kKey, {1}), second) ==
        RankExchangeOutcome::kCompleted);
  sleeper.join();
  CHECK(nodes.Member(node, 0).Look(first) == RankExchangeOutcome::kCompleted);
  CHECK(Finish(nodes.Member(1 - node, 0), cells[0]) == RankExchangeOutcome::kCompleted);
}

TEST_CASE("The driver is woken by what another rank of the hub completes") {
  RankExchangeNodes nodes(2, 2);
  std::uint32_t cell = 0;
  for (std::uint32_t m = 0; m < 2; ++m) {
    REQUIRE(nodes.Member(1, m).Contribute(Floats(kKey, {1}), cell) ==
            RankExchangeOutcome::kPending);
  }
  REQUIRE(nodes.Member(0, 0).Contribute(Floats(kKey, {1}), cell) == RankExchangeOutcome::kPending);
  DriveOnce(nodes.Member(0, 0));
  REQUIRE(nodes.Member(0, 0).BecomeDriver());
  auto drive = std::async(std::launch::async,
                          [&] { nodes.Member(0, 0).Drive(std::chrono::milliseconds(60'000)); });
  CHECK(nodes.Member(0, 1).Contribute(Floats(kKey, {1}), cell) == RankExchangeOutcome::kCompleted);
  CHECK(drive.wait_for(std::chrono::seconds(10)) == std::future_status::ready);
  CHECK(nodes.Member(0, 0).Look(cell) == RankExchangeOutcome::kCompleted);
}

TEST_CASE("There is one driver, and the next one is woken when it stops") {
  RankExchangeNodes nodes(2, 2);
  std::uint32_t cell = 0;
  REQUIRE(nodes.Member(1, 0).Contribute(Floats(kKey, {1}), cell) == RankExchangeOutcome::kPending);
  REQUIRE(nodes.Member(1, 1).BecomeDriver());
  CHECK_FALSE(nodes.Member(1, 0).BecomeDriver());
  CHECK_FALSE(nodes.Ringd(1).BecomeDriver());
  auto sleep = std::async(std::launch::async,
                          [&] { nodes.Member(1, 0).Sleep(cell, std::chrono::seconds(60)); });
  nodes.Member(1, 1).StopDriving();
  CHECK(sleep.wait_for(std::chrono::seconds(10)) == std::future_status::ready);
  CHECK(nodes.Member(1, 0).BecomeDriver());
}

TEST_CASE("A message may come in pieces, and with the next") {
  RankExchangeNodes nodes(2);
  std::uint32_t hub = 0;
  REQUIRE(nodes.Member(0).Contribute(Floats(kKey, {1}), hub) == RankExchangeOutcome::kPending);
  std::vector<std::byte> bytes;
  for (std::uint64_t occurrence = 0; occurrence < 2; ++occurrence) {
    RankExchangeMessage message{};
    message.magic = kRankExchangeMessageMagic;
    message.kind = RankExchangeMessageKind::kInput;
    message.payload_bytes = 4;
    message.signature = kKey.signature;
    message.occurrence = occurrence;
    const float value = 41;
    const auto* header = reinterpret_cast<const std::byte*>(&message);
    const auto* payload = reinterpret_cast<const std::byte*>(&value);
    bytes.insert(bytes.end(), header, header + sizeof(message));
    bytes.insert(bytes.end(), payload, payload + sizeof(value));
  }
  for (std::size_t i = 0; i < bytes.size(); i += 5) {
    const std::size_t piece = std::min<std::size_t>(5, bytes.size() - i);
    REQUIRE(::send(nodes.Connection(1, 0), bytes.data() + i, piece, 0) ==
            static_cast<ssize_t>(piece));
    DriveOnce(nodes.Member(0));
  }
  REQUIRE(nodes.Member(0).Look(hub) == RankExchangeOutcome::kCompleted);
  CHECK(ResultOf(nodes.Member(0), hub, 1) == std::vector<float>{42});
  CHECK(nodes.Member(0).Contribute(Floats({7, 1}, {1}), hub) == RankExchangeOutcome::kCompleted);
}

TEST_CASE("What another process writes of who is awaited leads nowhere") {
  RankExchangeNodes nodes(3);
  std::uint32_t cell = 0;
  REQUIRE(nodes.Member(1).Contribute(Floats(kKey, {1}), cell) == RankExchangeOutcome::kPending);
  REQUIRE(nodes.Member(0).Contribute(Floats(kKey, {1}), cell) == RankExchangeOutcome::kPending);
  nodes.View(0).control().awaited.store(NodeBit(0) | NodeBit(31));
  DriveOnce(nodes.Member(0));
  CHECK(nodes.Member(0).Usable());
  std::uint32_t last = 0;
  REQUIRE(nodes.Member(2).Contribute(Floats(kKey, {1}), last) == RankExchangeOutcome::kPending);
  CHECK(Finish(nodes.Member(0), cell) == RankExchangeOutcome::kCompleted);
}

TEST_CASE("ringd does not wait for a lock that a stopped rank holds, and ranks go the other way") {
  RankExchangeNodes nodes(2);
  nodes.View(0).control().lock.store(1);
  std::uint32_t cell = 0;
  REQUIRE(nodes.Member(1).Contribute(Floats(kKey, {1}), cell) == RankExchangeOutcome::kPending);
  DriveOnce(nodes.Ringd(0));
  CHECK(CellsInUse(nodes.View(0)) == 0);
  CHECK(nodes.Member(0).Contribute(Floats(kKey, {1}), cell) == RankExchangeOutcome::kGivenUp);
  // What has come meanwhile is not lost.
  nodes.View(0).control().lock.store(kRankExchangeNobody);
  CHECK(nodes.Member(0).Contribute(Floats(kKey, {1}), cell) == RankExchangeOutcome::kPending);
  DriveOnce(nodes.Ringd(0));
  CHECK(nodes.Member(0).Look(cell) == RankExchangeOutcome::kCompleted);
}

}  // namespace
}  // namespace ringd
