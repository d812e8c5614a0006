#include "client/core/tensors/submission_count.h"

#include <catch2/catch.hpp>
#include <cstdint>

namespace ringd::client {
namespace {

TEST_CASE("SubmissionCount: both ways are counted by one count") {
  SubmissionCount count;
  CHECK(count.TakeTurn() == 0);
  count.Accepted();
  count.Accepted();
  CHECK(count.TakeTurn() == 3);
}

TEST_CASE("SubmissionCount: a turn that ringd then refused is the next submission's") {
  SubmissionCount count;
  CHECK(count.TakeTurn() == 0);
  count.Refused();
  // Its key is used up in the rank exchange.
  CHECK_FALSE(count.ShouldTry());
  count.Accepted();
  CHECK(count.ShouldTry());
  CHECK(count.TakeTurn() == 1);
}

TEST_CASE("SubmissionCount: three given up in a row keep the next thousand away") {
  SubmissionCount count;
  for (std::uint32_t i = 0; i < SubmissionCount::kMostGivenUp; ++i) {
    REQUIRE(count.ShouldTry());
    count.GivenUp(count.TakeTurn());
  }
  for (std::uint64_t i = 0; i < SubmissionCount::kLeftOut; ++i) {
    REQUIRE_FALSE(count.ShouldTry());
    count.Accepted();
  }
  REQUIRE(count.ShouldTry());
  CHECK(count.TakeTurn() == SubmissionCount::kMostGivenUp + SubmissionCount::kLeftOut);
}

}  // namespace
}  // namespace ringd::client
