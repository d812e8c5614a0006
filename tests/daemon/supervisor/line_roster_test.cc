#include "daemon/supervisor/line_roster.h"

#include <sys/mman.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/tcp/line_shares.h"
#include "tests/count_descriptors.h"

namespace ringd {
namespace {

using Catch::Matchers::Contains;

std::unique_ptr<LineRoster> MakeRoster() {
  auto roster = LineRoster::Create();
  REQUIRE(roster.ok());
  return *std::move(roster);
}

std::unique_ptr<LineRoster::Slot> Add(LineRoster& roster, std::uint32_t weight = 1,
                                      uid_t uid = 1000) {
  auto slot = roster.Add(weight, uid);
  REQUIRE(slot.ok());
  return *std::move(slot);
}

std::unique_ptr<LineShares> SharesOf(const LineRoster::Slot& slot) {
  auto shares = LineShares::Open(slot.roster_fd(), slot.tags_fd(), slot.number());
  REQUIRE(shares.ok());
  return *std::move(shares);
}

TEST_CASE("LineRoster: engines get slots of their own, and share by the weights given here") {
  const auto roster = MakeRoster();
  const auto heavy = Add(*roster, 3);
  const auto light = Add(*roster, 1);
  CHECK(heavy->number() != light->number());
  const auto heavy_shares = SharesOf(*heavy);
  const auto light_shares = SharesOf(*light);
  LineTurn& heavy_turn = heavy_shares->TurnTo("10.0.0.2");
  LineTurn& light_turn = light_shares->TurnTo("10.0.0.2");
  heavy_turn.Begin();
  light_turn.Begin();
  heavy_turn.IsOwn(Clock::now());
  CHECK(heavy_turn.part() == Approx(0.75));
  light->SetWeight(9);
  heavy_turn.IsOwn(Clock::now());
  CHECK(heavy_turn.part() == Approx(0.25));
  light->SetWeight(100'000);
  heavy_turn.IsOwn(Clock::now());
  CHECK(heavy_turn.part() == Approx(3.0 / 103));
  // Another line is nobody's.
  CHECK_FALSE(heavy_shares->TurnTo("10.0.0.3").OthersWant());
}

TEST_CASE("LineRoster: an engine that has gone wants nothing, nor does the next one of its slot") {
  const auto roster = MakeRoster();
  const auto stays = Add(*roster);
  const auto shares = SharesOf(*stays);
  LineTurn& turn = shares->TurnTo("10.0.0.2");
  auto goes = Add(*roster);
  const auto of_gone = SharesOf(*goes);  // as one that is still about to end
  of_gone->TurnTo("10.0.0.2").Begin();
  CHECK(turn.OthersWant());
  goes.reset();
  CHECK_FALSE(turn.OthersWant());
  of_gone->TurnTo("10.0.0.3").Begin();
  std::vector<std::unique_ptr<LineRoster::Slot>> next;
  for (int i = 0; i < 100; ++i) next.push_back(Add(*roster));
  CHECK_FALSE(shares->TurnTo("10.0.0.3").OthersWant());
}

TEST_CASE("LineRoster: there is an end of slots for a user, and for all") {
  const auto roster = MakeRoster();
  std::vector<std::unique_ptr<LineRoster::Slot>> slots;
  for (std::size_t i = 0; i < LineRoster::kMostEnginesOfUser; ++i) {
    slots.push_back(Add(*roster, 1, 1000));
  }
  const auto one_more = roster->Add(1, 1000);
  CHECK(absl::IsResourceExhausted(one_more.status()));
  CHECK_THAT(std::string(one_more.status().message()), Contains("user 1000 has 128 jobs"));
  while (slots.size() < kMostEngines - LineRoster::kKeptForRoot - LineRoster::kKeptForOthers) {
    slots.push_back(Add(*roster, 1, 1001));
  }
  // The last ones are for those who have none, and for root.
  const auto second = roster->Add(1, 1001);
  CHECK(absl::IsResourceExhausted(second.status()));
  CHECK_THAT(std::string(second.status().message()),
             Contains("this node has 220 jobs") && Contains("for users who have none"));
  while (slots.size() < kMostEngines - LineRoster::kKeptForRoot) {
    slots.push_back(Add(*roster, 1, static_cast<uid_t>(2000 + slots.size())));
  }
  CHECK(absl::IsResourceExhausted(roster->Add(1, 1).status()));
  while (slots.size() < kMostEngines) slots.push_back(Add(*roster, 1, 0));
  CHECK(absl::IsResourceExhausted(roster->Add(1, 0).status()));
  const std::size_t freed = slots[7]->number();
  slots[7].reset();
  CHECK(Add(*roster, 1, 0)->number() == freed);
}

TEST_CASE("LineRoster: an engine can't write the roster, nor resize either segment") {
  const std::size_t before = CountDescriptors();
  {
    const auto roster = MakeRoster();
    const auto slot = Add(*roster);
    CHECK(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, slot->roster_fd(), 0) ==
          MAP_FAILED);
    const char byte = 1;
    CHECK(::pwrite(slot->roster_fd(), &byte, 1, 0) < 0);
    CHECK(::ftruncate(slot->roster_fd(), 0) != 0);
    CHECK(::ftruncate(slot->tags_fd(), 0) != 0);
    // Nor make a mapping writable that was made for reading.
    void* const mapped = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, slot->roster_fd(), 0);
    REQUIRE(mapped != MAP_FAILED);
    CHECK(::mprotect(mapped, 4096, PROT_READ | PROT_WRITE) != 0);
    ::munmap(mapped, 4096);
  }
  CHECK(CountDescriptors() == before);
}

}  // namespace
}  // namespace ringd
