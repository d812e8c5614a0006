#include "proto/base/command_queue.h"

#include <poll.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <thread>
#include <vector>

namespace ringd {
namespace {

bool Readable(int fd, int timeout_ms) {
  pollfd entry{fd, POLLIN, 0};
  return ::poll(&entry, 1, timeout_ms) == 1;
}

TEST_CASE("CommandQueue: a posted command wakes the consumer and runs once") {
  CommandQueue queue;
  CHECK(queue.empty());
  CHECK_FALSE(queue.RunAll());
  CHECK_FALSE(Readable(queue.event_fd(), 0));
  int runs = 0;
  queue.Post([&] { ++runs; });
  CHECK_FALSE(queue.empty());
  CHECK(runs == 0);
  CHECK(Readable(queue.event_fd(), 1000));
  CHECK(queue.RunAll());
  CHECK(runs == 1);
  CHECK_FALSE(Readable(queue.event_fd(), 0));
  CHECK_FALSE(queue.RunAll());
  CHECK(runs == 1);
}

TEST_CASE("CommandQueue: what a command posts runs the next time, and wakes again") {
  CommandQueue queue;
  std::vector<int> order;
  queue.Post([&] {
    order.push_back(1);
    queue.Post([&] { order.push_back(3); });
  });
  queue.Post([&] { order.push_back(2); });
  CHECK(queue.RunAll());
  CHECK(order == std::vector<int>{1, 2});
  CHECK_FALSE(queue.empty());
  CHECK(Readable(queue.event_fd(), 0));
  CHECK(queue.RunAll());
  CHECK(order == std::vector<int>{1, 2, 3});
}

TEST_CASE("CommandQueue: a command that has run holds nothing any more") {
  CommandQueue queue;
  auto held = std::make_shared<int>(1);
  queue.Post([held] {});
  CHECK(held.use_count() == 2);
  queue.RunAll();
  CHECK(held.use_count() == 1);
}

TEST_CASE("CommandQueue: a consumer that is quicker than the ring is not rung for nothing") {
  constexpr int kCommands = 20'000;
  CommandQueue queue;
  std::atomic<int> asked{0};
  std::atomic<int> posted{0};
  std::thread producer([&] {
    for (int i = 1; i <= kCommands; ++i) {
      while (asked.load(std::memory_order_acquire) < i) std::this_thread::yield();
      queue.Post([] {});
      posted.store(i, std::memory_order_release);
    }
  });
  int rung_for_nothing = 0;
  for (int i = 1; i <= kCommands; ++i) {
    asked.store(i, std::memory_order_release);
    // Looks without sleeping, as a busy engine does, and may be there before the ring is.
    while (!queue.RunAll()) std::this_thread::yield();
    while (posted.load(std::memory_order_acquire) < i) std::this_thread::yield();
    if (Readable(queue.event_fd(), 0)) ++rung_for_nothing;
  }
  producer.join();
  CHECK(rung_for_nothing == 0);
}

TEST_CASE("CommandQueue: many producers lose nothing, and each keeps its order") {
  constexpr int kProducers = 4;
  constexpr int kCommands = 2'000;
  CommandQueue queue;
  std::vector<int> next(kProducers, 0);
  int done = 0;
  bool in_order = true;
  std::vector<std::thread> producers;
  for (int p = 0; p < kProducers; ++p) {
    producers.emplace_back([&, p] {
      for (int i = 0; i < kCommands; ++i) {
        queue.Post([&, p, i] {
          in_order = in_order && next[static_cast<std::size_t>(p)] == i;
          ++next[static_cast<std::size_t>(p)];
          ++done;
        });
      }
    });
  }
  // Sleeps as the engine does: a lost wake-up would end the loop early.
  while (done < kProducers * kCommands) {
    if (queue.RunAll()) continue;
    if (queue.empty() && !Readable(queue.event_fd(), 10'000)) break;
  }
  for (std::thread& producer : producers) producer.join();
  CHECK(done == kProducers * kCommands);
  CHECK(in_order);
}

}  // namespace
}  // namespace ringd
