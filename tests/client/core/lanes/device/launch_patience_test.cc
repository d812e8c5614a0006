#include "client/core/lanes/device/launch_patience.h"

#include <catch2/catch.hpp>

namespace ringd::client {

using std::chrono::milliseconds;

TEST_CASE("LaunchPatience: a tenth after each wait in vain, down to none") {
  LaunchPatience patience;
  for (const int expected : {5000, 500, 50, 5, 0, 0}) {
    CHECK(patience.now() == milliseconds(expected));
    patience.NoteInVain(patience.now());
  }
}

TEST_CASE("LaunchPatience: it comes back after many launches in time, in a row") {
  LaunchPatience patience;
  for (int i = 0; i < 5; ++i) patience.NoteInVain(patience.now());
  const auto launch = [&](int times) {
    for (int i = 0; i < times; ++i) patience.NoteInTime();
  };
  launch(LaunchPatience::kRestoredAfter - 1);
  CHECK(patience.now() == milliseconds(0));
  // One in vain, as in each step where a rank submits late: it stays short.
  patience.NoteInVain(patience.now());
  launch(LaunchPatience::kRestoredAfter - 1);
  CHECK(patience.now() == milliseconds(0));
  launch(1);
  CHECK(patience.now() == LaunchPatience::kFull);
}

// A step of more tensors than that, one of them in vain.
TEST_CASE("LaunchPatience: it comes back ever more rarely where that is in vain") {
  LaunchPatience patience;
  int full = 0;
  for (int step = 0; step < 1000; ++step) {
    if (patience.now() == LaunchPatience::kFull) ++full;
    patience.NoteInVain(patience.now());
    for (int i = 0; i < 1500; ++i) patience.NoteInTime();
  }
  CHECK(full <= 3);
}

}  // namespace ringd::client
