#include "daemon/door/dial_turns.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <optional>

namespace ringd {
namespace {

// So many of his dials that get a turn at once, of `count`.
int Begun(DialTurns& turns, uid_t user, int count, std::uint64_t first_key) {
  int begun = 0;
  for (int i = 0; i < count; ++i) {
    begun += turns.Take(user, first_key + static_cast<std::uint64_t>(i)) ? 1 : 0;
  }
  return begun;
}

TEST_CASE("DialTurns: a user has no more than there are free, and another one always gets some") {
  DialTurns turns(256);
  CHECK(Begun(turns, 1, 1000, 0) == 128);
  CHECK(Begun(turns, 2, 1000, 1000) == 64);
  CHECK(Begun(turns, 3, 1000, 2000) == 32);
  CHECK(Begun(turns, 4, 1, 3000) == 1);
  CHECK_FALSE(turns.Next().has_value());
}

TEST_CASE("DialTurns: what is released goes to the user who has fewest, in order of arrival") {
  DialTurns turns(4);
  REQUIRE(Begun(turns, 1, 10, 0) == 2);
  REQUIRE(Begun(turns, 2, 10, 100) == 1);
  REQUIRE(turns.Take(3, 200));
  REQUIRE_FALSE(turns.Take(4, 300));
  turns.Release(1);
  CHECK(turns.Next() == 300);
  CHECK_FALSE(turns.Next().has_value());
  turns.Release(2);
  CHECK(turns.Next() == 101);
  turns.Release(4);
  turns.Release(3);
  turns.Release(2);
  // All but one socket is free: it is user 2's turn, then he has as many as user 1.
  CHECK(turns.Next() == 102);
  CHECK(turns.Next() == 2);
}

TEST_CASE("DialTurns: who waits no longer is passed over") {
  DialTurns turns(2);
  REQUIRE(turns.Take(1, 1));
  REQUIRE_FALSE(turns.Take(1, 2));
  REQUIRE_FALSE(turns.Take(1, 3));
  CHECK(turns.IsWaiting(2));
  turns.Forget(2);
  turns.Forget(1);  // did not wait
  CHECK_FALSE(turns.IsWaiting(2));
  turns.Release(1);
  CHECK(turns.Next() == 3);
  CHECK_FALSE(turns.IsWaiting(3));
  turns.Clear();
  CHECK(turns.Take(1, 4));
}

}  // namespace
}  // namespace ringd
