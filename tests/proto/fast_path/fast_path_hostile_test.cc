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
#include <thread>
#include <utility>
#include <vector>

#include "tests/proto/fast_path/fast_path_nodes.h"

namespace ringd {
namespace {

using testing::FastPathNodes;
using testing::Floats;
using testing::kKey;

// Far more than it takes, and less than a test may.
constexpr std::chrono::seconds kSoon{10};
constexpr int kLingerSeconds = 40;

void LetWait(int fd) { REQUIRE(::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK) == 0); }

TEST_CASE("ringd waits for no room in an eventfd, whatever members have done to it") {
  FastPathNodes nodes(2, 2);
  const int wakes = nodes.Connection(0, 0);
  const std::uint64_t most = UINT64_MAX - 1;
  REQUIRE(::write(wakes, &most, sizeof(most)) == sizeof(most));
  LetWait(wakes);
  std::uint32_t cell = 0;
  REQUIRE(nodes.Member(0, 0).Contribute(Floats(kKey, {1}), cell) == FastPathOutcome::kPending);
  std::this_thread::sleep_for(FastPathExchange::kPatience + std::chrono::milliseconds(10));
  // ringd gives that up, and the role seems to be another's, who would have to be woken.
  REQUIRE(nodes.Ringd(0).BecomeDriver());
  nodes.View(0).control().driver = 2;
  auto turn =
      std::async(std::launch::async, [&] { nodes.Ringd(0).Drive(std::chrono::milliseconds(0)); });
  const bool soon = turn.wait_for(kSoon) == std::future_status::ready;
  CHECK(soon);
  std::uint64_t count = 0;
  if (!soon) CHECK(::read(wakes, &count, sizeof(count)) == sizeof(count));
  turn.get();
  CHECK(nodes.Member(0, 0).Look(cell) == FastPathOutcome::kGivenUp);
}

TEST_CASE("ringd waits for no wakes that a member has taken meanwhile") {
  FastPathNodes nodes(2);
  const int wakes = nodes.Connection(0, 0);
  LetWait(wakes);
  std::atomic<bool> stop{false};
  std::thread member([&] {
    while (!stop) {
      const std::uint64_t one = 1;
      std::uint64_t count = 0;
      const iovec part{&count, sizeof(count)};
      if (::write(wakes, &one, sizeof(one)) < 0) return;
      if (::preadv2(wakes, &part, 1, -1, RWF_NOWAIT) < 0) continue;
    }
  });
  auto turns = std::async(std::launch::async, [&] {
    const auto end = Clock::now() + std::chrono::milliseconds(500);
    while (Clock::now() < end) testing::DriveOnce(nodes.Ringd(0));
  });
  // The writes of the member end a read that waits; without them it lasts.
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  stop = true;
  member.join();
  const bool soon = turns.wait_for(kSoon) == std::future_status::ready;
  CHECK(soon);
  const std::uint64_t one = 1;
  if (!soon) CHECK(::write(wakes, &one, sizeof(one)) == sizeof(one));
  turns.get();
}

TEST_CASE("A connection that is full, and was told to linger, does not do so in the end") {
  FastPathNodes nodes(2);
  int ends[2];
  testing::ConnectByTcp(ends);
  const UniqueFd other(ends[1]);
  const std::vector<char> bytes(1 << 16);
  while (::send(ends[0], bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) {
  }
  const linger option{1, kLingerSeconds};
  REQUIRE(::setsockopt(ends[0], SOL_SOCKET, SO_LINGER, &option, sizeof(option)) == 0);
  std::vector<UniqueFd> connections(2);
  connections[0] = UniqueFd(::dup(nodes.Connection(0, 0)));
  connections[1] = UniqueFd(ends[0]);
  auto exchange = FastPathExchange::Create(nodes.View(0), kFastPathRingd, std::move(connections));
  REQUIRE(exchange.ok());
  const auto begin = Clock::now();
  exchange->reset();
  CHECK(Clock::now() - begin < kSoon);
}

}  // namespace
}  // namespace ringd
