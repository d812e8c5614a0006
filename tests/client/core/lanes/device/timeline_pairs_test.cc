#include "client/core/lanes/device/timeline_pairs.h"

#include <catch2/catch.hpp>

namespace ringd::client {

TEST_CASE("TimelinePairs: pairs go round in turn, and tell who had them") {
  TimelinePairs pairs;
  for (std::uint64_t sequence = 0; sequence < kTimelinePairs; ++sequence) {
    CHECK(pairs.next() == sequence);
    CHECK_FALSE(pairs.LastOfNext().has_value());
    pairs.Use(sequence);
  }
  CHECK(pairs.next() == 0);
  CHECK(pairs.LastOfNext() == 0);
  pairs.Use(4711);
  CHECK(pairs.LastOfNext() == 1);
  pairs.Skip();
  CHECK(pairs.next() == 2);
  CHECK(pairs.LastOfNext() == 2);
}

}  // namespace ringd::client
