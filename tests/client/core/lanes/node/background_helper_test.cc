#include "client/core/lanes/node/background_helper.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "tests/client/core/lanes/node/local_job.h"

namespace ringd::client {
namespace {

using std::chrono::milliseconds;

constexpr std::uint64_t kCount = 500'000;

// Polls, and so does no work itself.
template <typename Condition>
bool SoonTrue(Condition condition) {
  const Clock::time_point deadline = InTenSeconds();
  while (!condition()) {
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

TEST_CASE(
    "BackgroundHelper: what all ranks have submitted is combined and ends while nobody waits") {
  LocalJob job(2);
  std::vector<std::unique_ptr<BackgroundHelper>> helpers;
  for (std::size_t m = 0; m < 2; ++m) {
    helpers.push_back(std::make_unique<BackgroundHelper>(*job[m].operations, AlwaysRoom()));
    REQUIRE(helpers.back()->Start().ok());
  }
  Floats tensor(0, 0, kCount);
  // The second time the threads have been asleep, or are about to be.
  for (int step = 0; step < 2; ++step) {
    std::vector<std::uint64_t> sequences;
    for (std::size_t m = 0; m < 2; ++m) {
      float* const data = job[m].At(0);
      for (std::uint64_t i = 0; i < kCount; ++i) data[i] = static_cast<float>(m + 1 + i % 7);
      sequences.push_back(Submit(job[m], tensor.registration, data));
    }
    for (std::size_t m = 0; m < 2; ++m) {
      INFO(m);
      CHECK(SoonTrue([&] { return job[m].operations->in_flight() == 0; }));
    }
    for (std::size_t m = 0; m < 2; ++m) {
      bool right = true;
      for (std::uint64_t i = 0; i < kCount; ++i) {
        right = right && job[m].At(0)[i] == static_cast<float>(3 + 2 * (i % 7));
      }
      CHECK(right);
      CHECK(Finish(job[m], sequences[m]).status == 0);
    }
    std::this_thread::sleep_for(BackgroundHelper::kLongestPause *
                                (BackgroundHelper::kIdlePauses + 2));
  }
}

TEST_CASE("BackgroundHelper: one tensor that is late holds up no other") {
  LocalJob job(2);
  BackgroundHelper helper(*job[1].operations, AlwaysRoom());
  REQUIRE(helper.Start().ok());
  Floats late(0, 0, kCount);
  Floats ready(1, 1, kCount);
  Submit(job[1], late.registration, job[1].At(0));
  Submit(job[0], ready.registration, job[0].At(1 << 22));
  Submit(job[1], ready.registration, job[1].At(1 << 22));
  const SharedTensor& shared = job[0].memory.segment().Tensor(1);
  CHECK(SoonTrue([&] { return shared.finished.load(std::memory_order_acquire) == 1; }));
  Submit(job[0], late.registration, job[0].At(0));
  CHECK(SoonTrue([&] { return job[1].operations->in_flight() == 0; }));
}

TEST_CASE("BackgroundHelper: stops at once, asleep or with operations in flight") {
  LocalJob job(2);
  const bool in_flight = GENERATE(false, true);
  BackgroundHelper helper(*job[0].operations, AlwaysRoom());
  REQUIRE(helper.Start().ok());
  Floats tensor(0, 0, kCount);
  if (in_flight) Submit(job[0], tensor.registration, job[0].At(0));
  helper.Stop();
  helper.Stop();
  // Nobody is left to do it.
  if (!in_flight) Submit(job[0], tensor.registration, job[0].At(0));
  Submit(job[1], tensor.registration, job[1].At(0));
  std::this_thread::sleep_for(10 * BackgroundHelper::kLongestPause);
  CHECK(job[0].operations->in_flight() == 1);
}

TEST_CASE("BackgroundHelper: leaves the processors to trainers that need them all") {
  LocalJob job(2);
  std::atomic<bool> busy{false};
  std::chrono::nanoseconds idle{0};
  Clock::time_point last = Clock::now();
  // By this count two processors are idle, or none.
  const auto read = [&]() -> std::optional<ProcessorTimes> {
    const Clock::time_point now = Clock::now();
    if (!busy) idle += 2 * (now - last);
    last = now;
    return ProcessorTimes{.at = now, .idle = idle, .own = {}, .processors = 2, .online = 2};
  };
  BackgroundHelper helper(*job[0].operations, ProcessorWatch(1, read));
  REQUIRE(helper.Start().ok());
  Floats late(0, 0, kCount);
  Floats tensor(1, 1, kCount);
  // Both ranks' operations have ended when it returns; true if the first one's had already `after`
  // they were submitted.
  const auto take = [&](Floats& floats, std::uint64_t at, milliseconds apart, milliseconds after) {
    const std::uint64_t first = Submit(job[0], floats.registration, job[0].At(at));
    std::this_thread::sleep_for(apart);
    const std::uint64_t second = Submit(job[1], floats.registration, job[1].At(at));
    std::this_thread::sleep_for(after);
    const bool ended = job[0].operations->in_flight() == 0;
    CHECK(Finish(job[0], first).status == 0);
    CHECK(Finish(job[1], second).status == 0);
    std::this_thread::sleep_for(ProcessorWatch::kInterval);
    return ended;
  };
  // While one is in flight, and nobody waits, it measures, and then has its verdict.
  const auto measure = [&] { take(late, 0, milliseconds(200), milliseconds(0)); };
  const auto combines = [&] { return take(tensor, 1 << 22, milliseconds(0), milliseconds(100)); };
  CHECK(SoonTrue(combines));
  busy = true;
  CHECK(SoonTrue([&] {
    measure();
    return !combines();
  }));
  busy = false;
  CHECK(SoonTrue([&] {
    measure();
    return combines();
  }));
}

}  // namespace
}  // namespace ringd::client
