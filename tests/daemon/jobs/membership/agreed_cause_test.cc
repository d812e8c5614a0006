#include "daemon/jobs/membership/agreed_cause.h"

#include <catch2/catch.hpp>

namespace ringd {
namespace {

const absl::Status kOurs = absl::AbortedError("rank 3 was killed");
const absl::Status kTheirs = absl::AbortedError("rank 5 was killed");

TEST_CASE("AgreedCause: what this node has seen is told once, and is not the cause yet") {
  AgreedCause cause;
  CHECK_FALSE(cause.pending());
  CHECK(cause.Propose(kOurs));
  CHECK_FALSE(cause.Propose(kTheirs));
  CHECK(cause.pending());
  CHECK_FALSE(cause.decided());
  CHECK(cause.cause().ok());
}

TEST_CASE("AgreedCause: the coordinator's word is the cause, whatever was proposed, and stays") {
  AgreedCause cause;
  SECTION("nothing was proposed") {}
  SECTION("another cause was proposed") { REQUIRE(cause.Propose(kOurs)); }
  CHECK(cause.Decide(kTheirs));
  CHECK(cause.decided());
  CHECK_FALSE(cause.pending());
  CHECK_FALSE(cause.Decide(kOurs));
  CHECK_FALSE(cause.Propose(kOurs));
  CHECK(cause.cause() == kTheirs);
}

TEST_CASE("AgreedCause: an unanswered proposal is handed back when patience is at its end") {
  AgreedCause cause;
  const Clock::time_point begin;
  CHECK_FALSE(cause.Unanswered(begin).has_value());
  REQUIRE(cause.Propose(kOurs));
  const Clock::time_point asked = begin + std::chrono::seconds(100);
  CHECK_FALSE(cause.Unanswered(asked).has_value());
  CHECK_FALSE(cause.Unanswered(asked + AgreedCause::kPatience - Clock::duration(1)).has_value());
  const auto alone = cause.Unanswered(asked + AgreedCause::kPatience);
  REQUIRE(alone.has_value());
  CHECK(*alone == kOurs);
  CHECK(cause.Decide(*alone));
  CHECK_FALSE(cause.Unanswered(asked + 2 * AgreedCause::kPatience).has_value());
}

}  // namespace
}  // namespace ringd
