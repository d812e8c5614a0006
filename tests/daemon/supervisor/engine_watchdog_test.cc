#include "daemon/supervisor/engine_watchdog.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace ringd {
namespace {

using std::chrono::milliseconds;

constexpr EngineActivity::Moment kSleeping{EngineDoing::kSleeping, 0};
constexpr EngineActivity::Moment kOfJob{EngineDoing::kJob, 7};

struct Watched {
  // Looks every 200 ms, as the thread that watches does.
  std::vector<EngineWatchdog::Word> Pass(milliseconds time, bool beats,
                                         EngineActivity::Moment activity = kSleeping) {
    std::vector<EngineWatchdog::Word> words;
    for (const auto end = now + time; now < end;) {
      now += milliseconds(200);
      // As an idle engine's: once a second.
      if (beats && now.time_since_epoch() % milliseconds(1000) == milliseconds(0)) ++heartbeat;
      if (auto word = watchdog.Look("the engine of job 'x' (pid 7 on a)", heartbeat, activity, now))
        words.push_back(*word);
    }
    return words;
  }

  EngineWatchdog watchdog;
  Clock::time_point now{milliseconds(1'000'000)};
  std::uint64_t heartbeat = 0;
};

TEST_CASE("EngineWatchdog: of an engine that is alive, also an idle one, nothing is said") {
  Watched watched;
  CHECK(watched.Pass(milliseconds(60'000), true).empty());
}

TEST_CASE("EngineWatchdog: says once what a hanging engine was doing, and once that it goes on") {
  Watched watched;
  CHECK(watched.Pass(milliseconds(5'000), true).empty());
  CHECK(watched.Pass(milliseconds(4'800), false, kOfJob).empty());
  const auto words = watched.Pass(milliseconds(10'000), false, kOfJob);
  REQUIRE(words.size() == 1);
  CHECK(words[0].text ==
        "the engine of job 'x' (pid 7 on a) has stood still for 5 s while advancing the operations "
        "of a job");
  CHECK(words[0].communicator == 7);
  const auto afterwards = watched.Pass(milliseconds(5'000), true);
  REQUIRE(afterwards.size() == 1);
  CHECK(afterwards[0].text.find("goes on, after at least 1") != std::string::npos);
  CHECK(watched.Pass(milliseconds(10'000), false).size() == 1);
}

TEST_CASE("EngineWatchdog: the engine is not to blame for times in which nothing ran") {
  Watched watched;
  watched.Pass(milliseconds(5'000), true);
  watched.now += milliseconds(30'000);
  const auto words = watched.Pass(milliseconds(5'000), true);
  REQUIRE(words.size() == 1);
  CHECK(words[0].text == "ringd has not run for 30 s: it was stopped, or got no processor");
}

}  // namespace
}  // namespace ringd
