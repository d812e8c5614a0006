#include "daemon/fast_path/fast_path_listener.h"

#include <sys/poll.h>

#include <catch2/catch.hpp>
#include <deque>
#include <vector>

#include "tests/daemon/fast_path/opening_nodes.h"

namespace ringd {
namespace {

constexpr auto kLongAfter = FastPathListener::kHelloPatience + std::chrono::seconds(1);

bool Stirred(const FastPathListener& listener) {
  pollfd readable{listener.event_fd(), POLLIN, 0};
  return ::poll(&readable, 1, 0) > 0;
}

TEST_CASE("FastPathListener: keeps who has said its hello until the job asks, and nobody else's") {
  const auto listener = OpenListener();
  Stranger ours(*listener);
  CHECK(Within([&] { return Stirred(*listener); }));
  ours.Say(BytesOf(HelloOf(3)));
  std::vector<FastPathListener::Arrival> arrivals;
  CHECK(Within([&] {
    listener->Advance(Clock::now());
    CHECK(listener->TakeArrivals(kWireId + 1).empty());
    arrivals = listener->TakeArrivals(kWireId);
    return !arrivals.empty();
  }));
  REQUIRE(arrivals.size() == 1);
  CHECK(arrivals[0].hello.node_index == 3);
  CHECK(arrivals[0].connection.valid());
  CHECK(arrivals[0].from.find("127.0.0.1") == 0);
  CHECK(listener->TakeArrivals(kWireId).empty());
  CHECK_FALSE(listener->NeedsTicks());
  CHECK_FALSE(Stirred(*listener));
}

TEST_CASE("FastPathListener: a hello may come in pieces") {
  const auto listener = OpenListener();
  Stranger slow(*listener);
  const FastPathHello hello = HelloOf(1);
  for (const std::byte& byte : BytesOf(hello)) {
    CHECK(listener->TakeArrivals(kWireId).empty());
    slow.Say(std::span(&byte, 1));
    listener->Advance(Clock::now());
  }
  CHECK(Within([&] {
    listener->Advance(Clock::now());
    return listener->TakeArrivals(kWireId).size() == 1;
  }));
}

TEST_CASE("FastPathListener: hangs up on what is no ringd, or another version's, or says too much") {
  const auto listener = OpenListener();
  FastPathHello hello = HelloOf(1);
  bool says_more = false;
  SECTION("magic") { hello.magic = 0x20544547; }
  SECTION("version") { hello.version = kFastPathWireVersion + 1; }
  SECTION("more than a hello") { says_more = true; }
  Stranger stranger(*listener);
  stranger.Say(BytesOf(hello));
  if (says_more) stranger.Say(BytesOf(hello));
  CHECK(Within([&] {
    listener->Advance(Clock::now());
    return stranger.HungUpOn();
  }));
  CHECK(listener->TakeArrivals(kWireId).empty());
  CHECK_FALSE(listener->NeedsTicks());
}

TEST_CASE("FastPathListener: hangs up on who says nothing, and on whom nobody waits for") {
  const auto listener = OpenListener();
  Stranger silent(*listener);
  Stranger unknown(*listener);
  unknown.Say(BytesOf(HelloOf(1)));
  const Clock::time_point began = Clock::now();
  listener->Advance(began);
  CHECK(listener->NeedsTicks());
  CHECK_FALSE(silent.HungUpOn());
  CHECK_FALSE(unknown.HungUpOn());
  CHECK(Within([&] {
    listener->Advance(began + kLongAfter);
    return silent.HungUpOn() && unknown.HungUpOn();
  }));
  CHECK_FALSE(listener->NeedsTicks());
}

TEST_CASE("FastPathListener: holds so many strangers, and takes more when those have gone") {
  const auto listener = OpenListener();
  std::deque<Stranger> crowd;
  for (std::size_t i = 0; i < FastPathListener::kMostStrangers; ++i) crowd.emplace_back(*listener);
  const Clock::time_point began = Clock::now();
  listener->Advance(began);
  Stranger ours(*listener);
  ours.Say(BytesOf(HelloOf(1)));
  listener->Advance(began);
  listener->Advance(began);
  CHECK(listener->TakeArrivals(kWireId).empty());
  // Nothing happens that would keep anybody awake.
  CHECK_FALSE(Stirred(*listener));
  CHECK(listener->NeedsTicks());
  CHECK(Within([&] {
    listener->Advance(began + kLongAfter);
    return listener->TakeArrivals(kWireId).size() == 1;
  }));
}

TEST_CASE("IsFastPathAddress: numeric, with a port") {
  CHECK(IsFastPathAddress("10.0.0.1:4711"));
  CHECK(IsFastPathAddress("[fd00::1]:4711"));
  CHECK_FALSE(IsFastPathAddress(""));
  CHECK_FALSE(IsFastPathAddress("10.0.0.1"));
  CHECK_FALSE(IsFastPathAddress("10.0.0.1:0"));
  CHECK_FALSE(IsFastPathAddress("node-b:4711"));
  CHECK_FALSE(IsFastPathAddress(std::string(100, '1') + ":4711"));
}

}  // namespace
}  // namespace ringd
