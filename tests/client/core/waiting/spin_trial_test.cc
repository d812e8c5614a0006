#include "client/core/waiting/spin_trial.h"

#include <catch2/catch.hpp>
#include <chrono>

namespace ringd::client {
namespace {

using std::chrono::microseconds;

// What ranks would see if each operation took so long.
void RunPeriod(SpinTrial& trial, std::uint64_t from, microseconds spun, microseconds slept) {
  for (std::uint64_t i = from; i < from + SpinTrial::kPeriod; ++i) {
    trial.Learn(i, trial.Spins(i) ? spun : slept);
  }
}

std::uint64_t SpinningIn(const SpinTrial& trial, std::uint64_t from, std::uint64_t to) {
  std::uint64_t count = 0;
  for (std::uint64_t i = from; i < to; ++i) count += trial.Spins(i) ? 1U : 0U;
  return count;
}

TEST_CASE("Half of a trial spins, whatever was found before") {
  SpinTrial trial;
  RunPeriod(trial, 0, microseconds(300), microseconds(100));
  CHECK(SpinningIn(trial, 0, SpinTrial::kTrial) == SpinTrial::kTrial / 2);
  CHECK(SpinningIn(trial, SpinTrial::kPeriod, SpinTrial::kPeriod + SpinTrial::kTrial) ==
        SpinTrial::kTrial / 2);
}

TEST_CASE("What was faster is done until the next trial, and then what is faster then") {
  SpinTrial trial;
  constexpr std::uint64_t kPeriod = SpinTrial::kPeriod;
  RunPeriod(trial, 0, microseconds(300), microseconds(100));
  CHECK(SpinningIn(trial, SpinTrial::kTrial + 1, kPeriod) == 0);
  RunPeriod(trial, kPeriod, microseconds(20), microseconds(60));
  CHECK(SpinningIn(trial, kPeriod + SpinTrial::kTrial + 1, 2 * kPeriod) ==
        kPeriod - SpinTrial::kTrial - 1);
}

TEST_CASE("Spinning that gains next to nothing is left") {
  SpinTrial trial;
  RunPeriod(trial, 0, microseconds(98), microseconds(100));
  CHECK_FALSE(trial.Spins(SpinTrial::kTrial + 1));
}

TEST_CASE("A trial of which too little is left changes nothing") {
  SpinTrial trial;
  for (std::uint64_t i = SpinTrial::kTrial - SpinTrial::kBlock; i <= SpinTrial::kTrial; ++i) {
    trial.Learn(i, microseconds(1));
  }
  CHECK(trial.Spins(SpinTrial::kTrial + 1));
}

TEST_CASE("Outliers don't decide") {
  SpinTrial trial;
  for (std::uint64_t i = 0; i <= SpinTrial::kTrial; ++i) {
    const bool outlier = i % 7 == 0;
    trial.Learn(i, outlier && trial.Spins(i) ? microseconds(100'000)
                                             : microseconds(trial.Spins(i) ? 20 : 60));
  }
  CHECK(trial.Spins(SpinTrial::kTrial + 1));
}

}  // namespace
}  // namespace ringd::client
