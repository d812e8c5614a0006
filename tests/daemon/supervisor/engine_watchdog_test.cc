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
  // `state`: of an engine of which nothing is heard, as proc(5) has it.
  std::vector<EngineWatchdog::Word> Pass(milliseconds time, bool beats,
                                         EngineActivity::Moment activity = kSleeping,
                                         const std::string& state = "") {
    std::vector<EngineWatchdog::Word> words;
    for (const auto end = now + time; now < end;) {
      now += milliseconds(200);
      // As an idle engine's: once a second.
      if (beats && now.time_since_epoch() % milliseconds(1000) == milliseconds(0)) ++heartbeat;
      if (state.empty()) heard = now;
      const EngineWatchdog::Sight sight{heartbeat, activity,     heard,
                                        is_unread, state == "T", state == "R"};
      auto word = watchdog.Look("the engine of job 'x' (pid 7 on a)", sight, now);
      if (word.has_value()) words.push_back(*word);
    }
    return words;
  }

  EngineWatchdog watchdog;
  Clock::time_point now{milliseconds(1'000'000)};
  std::uint64_t heartbeat = 0;
  bool is_unread = false;
  Clock::time_point heard = now;
};

TEST_CASE("EngineWatchdog: of an engine that is alive, also an idle one, nothing is said") {
  Watched watched;
  CHECK(watched.Pass(milliseconds(60'000), true).empty());
}

TEST_CASE("EngineWatchdog: time in which an engine has told what was not read does not count") {
  Watched watched;
  watched.is_unread = true;
  CHECK(watched.Pass(milliseconds(60'000), false).empty());
  // As it was silent for longer than anybody is.
  CHECK(watched.Pass(milliseconds(60'000), false, kSleeping, "S").empty());
  CHECK(watched.watchdog.still() == Clock::duration{0});
  watched.is_unread = false;
  CHECK(watched.Pass(milliseconds(10'000), false).size() == 1);
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

TEST_CASE("EngineWatchdog: of one that is stopped, or says nothing, it is not told what it did") {
  Watched watched;
  watched.Pass(milliseconds(5'000), true, kOfJob);
  const auto stopped = watched.Pass(milliseconds(6'000), false, kOfJob, "T");
  REQUIRE(stopped.size() == 1);
  CHECK(stopped[0].text ==
        "the engine of job 'x' (pid 7 on a) has stood still for 5 s: its process is stopped");
  watched.Pass(milliseconds(1'000), true, kOfJob);
  const auto silent = watched.Pass(milliseconds(6'000), false, kOfJob, "S");
  REQUIRE(silent.size() == 1);
  CHECK(silent[0].text.find("still for 5 s without a sign of life") != std::string::npos);
}

TEST_CASE("EngineWatchdog: the engine is not to blame for times in which it got no processor") {
  Watched watched;
  watched.Pass(milliseconds(5'000), true);
  CHECK(watched.Pass(milliseconds(60'000), false, kOfJob, "R").empty());
  // What it stood still before that was noticed.
  CHECK(watched.watchdog.still() <= milliseconds(3'000));
  // Its main thread tells of itself, the other one turns for ever.
  CHECK(watched.Pass(milliseconds(5'000), false, kOfJob).size() == 1);
}

}  // namespace
}  // namespace ringd
