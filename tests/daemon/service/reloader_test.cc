#include "daemon/service/reloader.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <future>
#include <string>
#include <thread>

#include "absl/status/status.h"

namespace ringd {
namespace {

using Catch::Contains;
using std::chrono::seconds;

// What is read, and when. Outlives the reloader: its threads may wait still.
struct Disk {
  std::promise<void> answer;
  std::shared_future<void> answered{answer.get_future()};
  std::atomic<int> readings{0};
};

Reloader::Read ReadOf(const std::shared_ptr<Disk>& disk) {
  return [disk]() -> absl::StatusOr<Reloaded> {
    const int number = ++disk->readings;
    disk->answered.wait();
    Reloaded reloaded;
    reloaded.loaded.file = std::to_string(number);
    return reloaded;
  };
}

// Until something was read.
absl::StatusOr<Reloaded> Await(Reloader& reloader) {
  const Clock::time_point deadline = Clock::now() + seconds(60);
  for (;;) {
    if (auto result = reloader.Take(Clock::now())) return *std::move(result);
    REQUIRE(Clock::now() < deadline);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

TEST_CASE("Reloader: nobody waits for what is read, and what is asked meanwhile is read after it") {
  const auto disk = std::make_shared<Disk>();
  Reloader reloader([&] { return ReadOf(disk); }, std::chrono::hours(1));
  CHECK_FALSE(reloader.IsUnderWay());
  CHECK_FALSE(reloader.Take(Clock::now()).has_value());
  for (int ask = 0; ask < 3; ++ask) reloader.Ask(Clock::now());
  CHECK_FALSE(reloader.Take(Clock::now()).has_value());
  CHECK(reloader.IsUnderWay());
  disk->answer.set_value();
  CHECK(Await(reloader)->loaded.file == "1");
  CHECK(reloader.IsUnderWay());
  CHECK(Await(reloader)->loaded.file == "2");
  CHECK_FALSE(reloader.IsUnderWay());
}

TEST_CASE("Reloader: what takes too long is given up, and not begun without end") {
  const auto disk = std::make_shared<Disk>();
  Reloader reloader([&] { return ReadOf(disk); }, seconds(60));
  Clock::time_point now = Clock::now();
  for (std::size_t late = 0; late < Reloader::kMostLate; ++late) {
    reloader.Ask(now);
    CHECK_FALSE(reloader.Take(now + seconds(59)).has_value());
    now += seconds(60);
    const auto result = reloader.Take(now);
    REQUIRE(result.has_value());
    CHECK(absl::IsDeadlineExceeded(result->status()));
    CHECK_THAT(std::string(result->status().message()), Contains("has not answered for 60 s"));
    CHECK_FALSE(reloader.IsUnderWay());
  }
  reloader.Ask(now);
  CHECK(absl::IsResourceExhausted(reloader.Take(now)->status()));
  // Once they have come back, all is well, and nobody has taken what they brought.
  const Clock::time_point deadline = Clock::now() + seconds(60);
  while (disk->readings < static_cast<int>(Reloader::kMostLate)) {
    REQUIRE(Clock::now() < deadline);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  disk->answer.set_value();
  for (;;) {
    reloader.Ask(now);
    if (const auto result = Await(reloader); result.ok()) {
      CHECK(result->loaded.file == std::to_string(Reloader::kMostLate + 1));
      break;
    }
    REQUIRE(Clock::now() < deadline);
  }
}

TEST_CASE("Reloader: goes while something is read") {
  const auto disk = std::make_shared<Disk>();
  {
    Reloader reloader([&] { return ReadOf(disk); });
    reloader.Ask(Clock::now());
  }
  disk->answer.set_value();
}

}  // namespace
}  // namespace ringd
