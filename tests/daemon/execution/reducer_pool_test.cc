#include "daemon/execution/reducer_pool.h"

#include <poll.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace ringd {
namespace {

using std::chrono::steady_clock;

constexpr auto kPatience = std::chrono::seconds(30);

template <typename Condition>
bool Within(Condition condition) {
  const auto deadline = steady_clock::now() + kPatience;
  while (!condition()) {
    if (steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

// Counts how often each part is done; a gate may hold whoever is at it.
class CountedWork final : public ReducerWork {
 public:
  explicit CountedWork(std::size_t parts, bool open = true, std::chrono::milliseconds length = {})
      : done_(parts), open_(open), length_(length) {}

  std::optional<std::size_t> Claim() noexcept override {
    const std::size_t part = next_.fetch_add(1);
    if (part >= done_.size()) return std::nullopt;
    ++claimed_;
    return part;
  }
  void Finish(std::size_t part) noexcept override {
    Within([this] { return open_.load(); });
    if (length_.count() > 0) std::this_thread::sleep_for(length_);
    ++done_[part];
    if (part + 1 == done_.size() && on_last_) on_last_();
    ++finished_;
  }

  // Called by whom finishes the last part. Before the work is offered.
  void OnLast(std::function<void()> call) { on_last_ = std::move(call); }
  void Open() { open_ = true; }
  std::size_t claimed() const { return claimed_; }
  std::size_t finished() const { return finished_; }
  bool EachDoneOnce() const {
    for (const auto& times : done_) {
      if (times != 1) return false;
    }
    return true;
  }

 private:
  std::atomic<std::size_t> next_{0};
  std::atomic<std::size_t> claimed_{0};
  std::atomic<std::size_t> finished_{0};
  std::vector<std::atomic<int>> done_;
  std::atomic<bool> open_;
  const std::chrono::milliseconds length_;
  std::function<void()> on_last_;
};

// Work to which parts are added while it is done.
class GrowingWork final : public ReducerWork {
 public:
  std::optional<std::size_t> Claim() noexcept override {
    std::size_t part = claimed_;
    do {
      if (part >= added_) return std::nullopt;
    } while (!claimed_.compare_exchange_weak(part, part + 1));
    return part;
  }
  void Finish(std::size_t) noexcept override { ++finished_; }
  bool MayGrow() const noexcept override { return true; }

  void Grow() { ++added_; }
  std::size_t finished() const { return finished_; }

 private:
  std::atomic<std::size_t> added_{0};
  std::atomic<std::size_t> claimed_{0};
  std::atomic<std::size_t> finished_{0};
};

bool IsReadable(int fd, int timeout_ms) {
  pollfd entry{fd, POLLIN, 0};
  return ::poll(&entry, 1, timeout_ms) == 1;
}

TEST_CASE("DefaultReducerThreads: none on small machines, one for eight processors, at most four") {
  CHECK(DefaultReducerThreads(0) == 0);
  CHECK(DefaultReducerThreads(2) == 0);
  CHECK(DefaultReducerThreads(7) == 0);
  CHECK(DefaultReducerThreads(8) == 1);
  CHECK(DefaultReducerThreads(24) == 3);
  CHECK(DefaultReducerThreads(512) == 4);
}

TEST_CASE("ReducerPool: every part of every work is done exactly once") {
  ReducerPool pool(3);
  CHECK(pool.thread_count() == 3);
  std::vector<std::shared_ptr<CountedWork>> works;
  for (std::size_t i = 0; i < 200; ++i) {
    works.push_back(std::make_shared<CountedWork>(i % 40));
    pool.Offer(works.back());
  }
  for (std::size_t i = 0; i < works.size(); ++i) {
    REQUIRE(Within([&] { return works[i]->finished() == i % 40; }));
    CHECK(works[i]->EachDoneOnce());
  }
}

TEST_CASE("ReducerPool: keeps nothing of a work that has no parts left") {
  ReducerPool pool(2);
  auto work = std::make_shared<CountedWork>(10);
  const std::weak_ptr<CountedWork> watched = work;
  pool.Offer(std::move(work));
  CHECK(Within([&] { return watched.expired(); }));
}

TEST_CASE("ReducerPool: works take turns, so that none waits for all of another") {
  ReducerPool pool(1);
  const auto gate = std::make_shared<CountedWork>(1, /*open=*/false);
  const auto large = std::make_shared<CountedWork>(100'000);
  const auto small = std::make_shared<CountedWork>(5);
  pool.Offer(gate);
  REQUIRE(Within([&] { return gate->claimed() == 1; }));
  std::atomic<std::size_t> large_by_then{0};
  small->OnLast([&] { large_by_then = large->finished(); });
  pool.Offer(large);
  pool.Offer(small);
  gate->Open();
  REQUIRE(Within([&] { return small->finished() == 5; }));
  CHECK(large_by_then <= 6);
  CHECK(Within([&] { return large->finished() == 100'000; }));
}

TEST_CASE("ReducerPool: what grows is kept, and who sleeps hears of it when he is told") {
  ReducerPool pool(2);
  const auto work = std::make_shared<GrowingWork>();
  pool.Offer(work);
  for (std::size_t parts = 1; parts <= 2000; ++parts) {
    work->Grow();
    pool.Tell();
    // Now and then they have gone to sleep before the next one, or are about to.
    if (parts % 7 == 0) REQUIRE(Within([&] { return work->finished() == parts; }));
  }
  CHECK(Within([&] { return work->finished() == 2000; }));
  pool.Withdraw(*work);
  CHECK(Within([&] { return work.use_count() == 1; }));
  work->Grow();
  pool.Tell();
  CHECK(work->finished() == 2000);
}

TEST_CASE("ReducerPool: what is withdrawn before anybody came is not begun") {
  ReducerPool pool(1);
  const auto gate = std::make_shared<CountedWork>(1, /*open=*/false);
  const auto withdrawn = std::make_shared<CountedWork>(5);
  const auto behind = std::make_shared<CountedWork>(1);
  pool.Offer(gate);
  pool.Offer(withdrawn);
  pool.Offer(behind);
  REQUIRE(Within([&] { return gate->claimed() == 1; }));
  pool.Withdraw(*withdrawn);
  gate->Open();
  CHECK(Within([&] { return behind->finished() == 1; }));
  CHECK(withdrawn->claimed() == 0);
}

TEST_CASE("ReducerPool: destruction finishes what is claimed and begins nothing more") {
  const auto work =
      std::make_shared<CountedWork>(5000, /*open=*/false, std::chrono::milliseconds(1));
  std::thread opener;
  {
    ReducerPool pool(2);
    pool.Offer(work);
    REQUIRE(Within([&] { return work->claimed() == 2; }));
    opener = std::thread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      work->Open();
    });
  }
  opener.join();
  CHECK(work->finished() == work->claimed());
  CHECK(work->claimed() < 5000);
}

TEST_CASE("ReducerPool: without threads nobody takes anything, and nothing is kept") {
  ReducerPool pool(0);
  auto work = std::make_shared<CountedWork>(10);
  pool.Offer(work);
  CHECK(work.use_count() == 1);
  CHECK(pool.thread_count() == 0);
}

TEST_CASE("ReducerPool: a wake-up stays until it is drained") {
  ReducerPool pool(0);
  CHECK_FALSE(IsReadable(pool.event_fd(), 0));
  pool.WakeEngine();
  pool.WakeEngine();
  CHECK(IsReadable(pool.event_fd(), 1000));
  pool.DrainEventFd();
  CHECK_FALSE(IsReadable(pool.event_fd(), 0));
}

}  // namespace
}  // namespace ringd
