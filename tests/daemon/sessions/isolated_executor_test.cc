#include "daemon/sessions/isolated_executor.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstddef>
#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "proto/base/clock.h"
#include "proto/base/unique_fd.h"
#include "proto/base/unix_socket.h"
#include "tests/proto/base/tcp_pair.h"

namespace ringd {
namespace {

constexpr std::chrono::seconds kSoon{10};

// A TCP socket that nobody else holds, and whose close waits.
struct Lingering {
  Lingering() {
    auto ends = testing::TcpPair();
    full = std::move(ends[0]);
    other = std::move(ends[1]);
    testing::MakeLinger(full.get());
  }

  UniqueFd full;
  UniqueFd other;
};

// Sends `fd` to the other end of `socket`, where it is not received.
void SendAway(int socket, const UniqueFd& fd) {
  const std::array<std::byte, 1> byte{};
  const std::array<int, 1> fds = {fd.get()};
  REQUIRE(SendWithFds(socket, byte, fds, Clock::now()).ok());
}

bool Empty(const IsolatedExecutor& executor) {
  const auto end = Clock::now() + kSoon;
  while (executor.backlog() > 0 && Clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return executor.backlog() == 0;
}

TEST_CASE("IsolatedExecutor: destroys what nobody else holds, on another thread") {
  std::thread::id where;
  struct Noted {
    std::thread::id* where;
    ~Noted() { *where = std::this_thread::get_id(); }
  };
  auto kept = std::make_shared<int>(1);
  {
    IsolatedExecutor executor;
    auto noted = std::make_shared<Noted>();
    noted->where = &where;
    executor.Destroy(std::move(noted));
    executor.Destroy(kept);
    executor.Destroy(nullptr);
    CHECK(Empty(executor));
  }
  CHECK(where != std::thread::id());
  CHECK(where != std::this_thread::get_id());
  CHECK(kept.use_count() == 1);
}

TEST_CASE("IsolatedExecutor: destroys what is left when it ends") {
  auto kept = std::make_shared<int>(1);
  const std::weak_ptr<int> seen = kept;
  {
    IsolatedExecutor executor;
    executor.Destroy(std::move(kept));
  }
  CHECK(seen.expired());
}

TEST_CASE("IsolatedExecutor: is not kept by a socket that lingers") {
  Lingering socket;
  const auto begin = Clock::now();
  {
    IsolatedExecutor executor;
    executor.Destroy(std::make_shared<UniqueFd>(std::move(socket.full)));
    CHECK(Clock::now() - begin < kSoon);
    CHECK(Empty(executor));
  }
  CHECK(Clock::now() - begin < kSoon);
}

TEST_CASE(
    "IsolatedExecutor: is not kept by sockets that were sent through another one, and never "
    "received") {
  std::array<int, 2> ends{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
  const UniqueFd theirs(ends[0]);
  UniqueFd ours(ends[1]);
  std::vector<Lingering> sockets(20);
  for (Lingering& socket : sockets) {
    SendAway(theirs.get(), socket.full);
    socket.full.Reset();
  }
  IsolatedExecutor executor;
  executor.Destroy(std::make_shared<UniqueFd>(std::move(ours)));
  CHECK(Empty(executor));
}

TEST_CASE("IsolatedExecutor: runs tasks in their order") {
  std::vector<int> order;
  {
    IsolatedExecutor executor;
    for (int i = 0; i < 3; ++i) executor.Run([&order, i] { order.push_back(i); });
  }
  CHECK(order == std::vector<int>{0, 1, 2});
}

TEST_CASE("IsolatedExecutor: tasks that are held up keep no other from running") {
  constexpr int kStuck = 3;
  std::promise<void> release;
  const std::shared_future<void> released = release.get_future().share();
  std::atomic<bool> ran = false;
  std::atomic<int> ended = 0;
  IsolatedExecutor executor;
  for (int i = 0; i < kStuck; ++i) {
    executor.Run([released, &ended] {
      released.wait_for(2 * kSoon);
      ++ended;
    });
  }
  executor.Run([&ran] { ran = true; });
  const auto end = Clock::now() + kSoon;
  while (!ran && Clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    executor.Run([] {});
  }
  CHECK(ran);
  CHECK(ended == 0);
  CHECK(executor.backlog() >= kStuck);
  release.set_value();
  CHECK(Empty(executor));
  CHECK(ended == kStuck);
}

TEST_CASE("IsolatedExecutor: who waits behind one that is held up runs when somebody looks") {
  std::promise<void> release;
  const std::shared_future<void> released = release.get_future().share();
  std::atomic<bool> ran = false;
  IsolatedExecutor executor;
  executor.Run([released] { released.wait_for(2 * kSoon); });
  executor.Run([&ran] { ran = true; });
  const auto end = Clock::now() + kSoon;
  while (!ran && Clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    executor.RelieveHeldUp();
  }
  CHECK(ran);
  release.set_value();
  CHECK(Empty(executor));
}

}  // namespace
}  // namespace ringd
