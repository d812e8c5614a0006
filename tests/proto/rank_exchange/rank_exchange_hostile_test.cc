// What other processes do to the descriptors that they share with ringd: it waits for none of it.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <future>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "tests/proto/base/tcp_pair.h"
#include "tests/proto/rank_exchange/rank_exchange_nodes.h"

namespace ringd {
namespace {

using testing::Floats;
using testing::kKey;
using testing::RankExchangeNodes;

// Far more than it takes, and less than a test may.
constexpr std::chrono::seconds kSoon{10};

void LetWait(int fd) { REQUIRE(::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK) == 0); }

constexpr std::uint64_t kFull = UINT64_MAX - 1;

// Counts ringd's turns in one thread, while another one plays a member. What ringd does there must
// go on.
std::uint64_t TurnsOf(const RankExchangeNodes& nodes) { return nodes.View(0).control().turns; }

// False if ringd takes no turn for kSoon.
bool GoesOn(const RankExchangeNodes& nodes) {
  const std::uint64_t before = TurnsOf(nodes);
  const auto end = Clock::now() + kSoon;
  while (TurnsOf(nodes) == before) {
    if (Clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

TEST_CASE("ringd waits for no room in an eventfd, whatever members do to it") {
  RankExchangeNodes nodes(2, 2);
  const int wakes = nodes.Connection(0, 0);
  LetWait(wakes);
  std::atomic<bool> stop{false};
  // Whenever ringd has emptied it, it is filled again.
  std::thread filler([&] {
    while (!stop) {
      if (::write(wakes, &kFull, sizeof(kFull)) < 0) return;
    }
  });
  RankExchangeCell& cell = nodes.View(0).Cell(0);
  auto turns = std::async(std::launch::async, [&] {
    while (!stop) {
      if (!nodes.Ringd(0).BecomeDriver()) continue;
      // An operation that it gives up, and a role that seems to be another's, who would have to be
      // woken.
      cell.created_ns = 1;
      cell.state = RankExchangeCellState::kGathers;
      nodes.View(0).control().driver = 2;
      nodes.Ringd(0).Drive(std::chrono::milliseconds(0));
      nodes.Ringd(0).StopDriving();
    }
  });
  bool goes_on = true;
  for (int i = 0; i < 20'000 && goes_on; ++i) goes_on = GoesOn(nodes);
  CHECK(goes_on);
  stop = true;
  // Room for all who wait for it.
  const auto end_both = [&] {
    std::uint64_t count = 0;
    const iovec part{&count, sizeof(count)};
    static_cast<void>(!::preadv2(wakes, &part, 1, -1, RWF_NOWAIT));
    return turns.wait_for(std::chrono::milliseconds(1)) == std::future_status::ready;
  };
  while (!end_both()) {
  }
  static_cast<void>(end_both());
  filler.join();
}

TEST_CASE("ringd waits for no wakes that a member has taken meanwhile") {
  RankExchangeNodes nodes(2);
  const int wakes = nodes.Connection(0, 0);
  LetWait(wakes);
  std::atomic<bool> stop{false};
  auto turns = std::async(std::launch::async, [&] {
    while (!stop) testing::DriveOnce(nodes.Ringd(0));
  });
  const std::uint64_t one = 1;
  std::mt19937 random(1);
  bool goes_on = true;
  for (int i = 0; i < 20'000 && goes_on; ++i) {
    REQUIRE(::write(wakes, &one, sizeof(one)) == sizeof(one));
    // Between ringd's look and its reading, sooner or later.
    const auto until = Clock::now() + std::chrono::nanoseconds(random() % 5000);
    while (Clock::now() < until) {
    }
    std::uint64_t count = 0;
    const iovec part{&count, sizeof(count)};
    static_cast<void>(!::preadv2(wakes, &part, 1, -1, RWF_NOWAIT));
    goes_on = GoesOn(nodes);
  }
  CHECK(goes_on);
  stop = true;
  REQUIRE(::write(wakes, &one, sizeof(one)) == sizeof(one));
  turns.get();
}

TEST_CASE("A connection that is full, and was told to linger, does not do so in the end") {
  RankExchangeNodes nodes(2);
  auto ends = testing::TcpPair();
  testing::MakeLinger(ends[0].get());
  std::vector<UniqueFd> connections(2);
  connections[0] = UniqueFd(::dup(nodes.Connection(0, 0)));
  connections[1] = std::move(ends[0]);
  auto exchange = RankExchange::Create(nodes.View(0), kRankExchangeRingd, std::move(connections));
  REQUIRE(exchange.ok());
  const auto begin = Clock::now();
  exchange->reset();
  CHECK(Clock::now() - begin < kSoon);
}

}  // namespace
}  // namespace ringd
