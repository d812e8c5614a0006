#include "daemon/schedule/node/ready_offset.h"

#include <catch2/catch.hpp>
#include <chrono>

namespace ringd {

using std::chrono::microseconds;
using std::chrono::milliseconds;

TEST_CASE("ReadyOffset: a slow first step fades away") {
  ReadyOffset offset;
  offset.Add(milliseconds(900));
  for (int i = 0; i < 60; ++i) offset.Add(milliseconds(10));
  CHECK(offset.mean() > milliseconds(9));
  CHECK(offset.mean() < milliseconds(11));
}

TEST_CASE("ReadyOffset: is news after some steps, and again when it has changed") {
  ReadyOffset offset;
  offset.Add(milliseconds(10));
  offset.Add(milliseconds(10));
  CHECK_FALSE(offset.IsNews());
  offset.Add(milliseconds(10));
  CHECK(offset.IsNews());
  CHECK(offset.Tell() == milliseconds(10));
  CHECK_FALSE(offset.IsNews());
  offset.Add(milliseconds(11));
  CHECK_FALSE(offset.IsNews());
  for (int i = 0; i < 20; ++i) offset.Add(milliseconds(15));
  CHECK(offset.IsNews());
  offset.Tell();
  CHECK_FALSE(offset.IsNews());
  offset.Untell();
  CHECK(offset.IsNews());
}

TEST_CASE("ReadyOffset: microseconds are no news, whatever their share") {
  ReadyOffset offset;
  for (int i = 0; i < 3; ++i) offset.Add(microseconds(1));
  REQUIRE(offset.IsNews());
  offset.Tell();
  for (int i = 0; i < 20; ++i) offset.Add(microseconds(90));
  CHECK_FALSE(offset.IsNews());
}

}  // namespace ringd
