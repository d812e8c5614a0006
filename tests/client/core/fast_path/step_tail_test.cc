// Which tensors are held back for a wait, told from nothing but the order of the calls.
#include "client/core/fast_path/step_tail.h"

#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "tests/client/core/fast_path/step_rounds.h"

namespace ringd::client {
namespace {

void Learn(StepTail& tail, const Round& round) {
  for (int i = 0; i < StepTail::kAlike; ++i) REQUIRE(Play(tail, round) == kNothing);
}

TEST_CASE("StepTail: from the third round alike on, the last small tensors are held") {
  Tensors tensors;
  StepTail tail(kLimit);
  const Round round = {&tensors.Add(kLarge), &tensors.Add(100), &tensors.Add(200)};
  Learn(tail, round);
  for (int i = 0; i < 3; ++i) CHECK(Play(tail, round) == Whole(2));
  CHECK(tail.held() == 0);
  // Waits without submissions before them are no rounds.
  CHECK(Play(tail, {}) == kNothing);
  CHECK(Play(tail, round) == Whole(2));
}

TEST_CASE("StepTail: says with each submission how many are held") {
  Tensors tensors;
  StepTail tail(kLimit);
  const Round round = {&tensors.Add(kLarge), &tensors.Add(1), &tensors.Add(2)};
  Learn(tail, round);
  CHECK_FALSE(tail.OnSubmit(*round[0]));
  CHECK(tail.held() == 0);
  CHECK(tail.OnSubmit(*round[1]));
  CHECK(tail.held() == 1);
  CHECK(tail.OnSubmit(*round[2]));
  CHECK(tail.held() == 2);
  CHECK(tail.OnWait());
  CHECK(tail.held() == 0);
}

TEST_CASE("StepTail: how much a tail may have") {
  Tensors tensors;
  StepTail tail(kLimit);
  Round round = {&tensors.Add(kLarge)};
  const auto add = [&](std::initializer_list<std::uint64_t> sizes) {
    for (const std::uint64_t bytes : sizes) round.push_back(&tensors.Add(bytes));
  };
  std::size_t held = 0;
  SECTION("the last, up to the limit, alone") {
    add({1, kLimit});
    held = 1;
  }
  SECTION("... but no more") { add({1, kLimit + 1}); }
  SECTION("nor if there is nothing in it") { add({1, 0}); }
  SECTION("others, as much as may be late for it") {
    add({1, StepTail::kMostOtherBytes - 96, 96, 8});
    held = 3;
  }
  SECTION("... but not more") {
    add({StepTail::kMostOtherBytes - 95, 96, 8});
    held = 2;
  }
  SECTION("all of them up to the limit") {
    add({1, 2000, kLimit - 2000});
    held = 2;
  }
  SECTION("a larger one in between ends it") {
    add({4, 5000, 4, 4});
    held = 2;
  }
  SECTION("not more tensors than an operation may have parts") {
    for (std::size_t i = 0; i < StepTail::kMostTensors + 3; ++i) add({4});
    held = StepTail::kMostTensors;
  }
  Learn(tail, round);
  CHECK(Play(tail, round) == (held == 0 ? kNothing : Whole(held)));
}

TEST_CASE("StepTail: a round with little before its tail is left to ringd") {
  Tensors tensors;
  StepTail tail(kLimit);
  Registration& last = tensors.Add(100);
  // The middle one can't be in a tail: what counts is all that is before it.
  const Round enough = {&tensors.Add(kLarge - kLimit), &tensors.Add(kLimit), &last};
  const Round too_little = {&tensors.Add(kLarge - kLimit - 1), enough[1], &last};
  Learn(tail, too_little);
  CHECK(Play(tail, too_little) == kNothing);
  Learn(tail, enough);
  CHECK(Play(tail, enough) == Whole(1));
  // The same tensors, but less before them.
  CHECK(Play(tail, too_little) == kNothing);
  CHECK(Play(tail, {&last}) == kNothing);
  CHECK(Play(tail, enough) == Whole(1));
}

TEST_CASE("StepTail: what can't be combined with the last is not in its tail") {
  Tensors tensors;
  StepTail tail(kLimit);
  TensorDescription other = Reduction("other", DataType::kUint8, ReduceOp::kSum, 8);
  SECTION("another type") { other.data_type = DataType::kInt8; }
  SECTION("another operator") { other.op = ReduceOp::kMax; }
  SECTION("another factor before") { other.prescale = 0.5; }
  SECTION("another factor after") { other.postscale = 2; }
  SECTION("another kind") { other.kind = CollectiveKind::kBroadcast; }
  const Round round = {&tensors.Add(kLarge), &tensors.Add(8), &tensors.Add(other), &tensors.Add(8),
                       &tensors.Add(8)};
  Learn(tail, round);
  CHECK(Play(tail, round) == Whole(2));
}

TEST_CASE("StepTail: a round that ends with something else than an all-reduce has no tail") {
  Tensors tensors;
  StepTail tail(kLimit);
  const Round round = {&tensors.Add(kLarge), &tensors.Add(8), &tensors.Add(Barrier("barrier"))};
  for (int i = 0; i < 6; ++i) CHECK(Play(tail, round) == kNothing);
}

TEST_CASE("StepTail: one tensor twice in the end is there once") {
  Tensors tensors;
  StepTail tail(kLimit);
  Registration& small = tensors.Add(8);
  const Round round = {&tensors.Add(kLarge), &small, &small};
  Learn(tail, round);
  // The first is taken for the tail, until the second comes.
  CHECK(Play(tail, round) == Seen{1, 1, false});
}

TEST_CASE("StepTail: what was held and is not a whole tail has to prove itself again") {
  Tensors tensors;
  StepTail tail(kLimit);
  Registration& large = tensors.Add(kLarge);
  Registration& a = tensors.Add(8);
  Registration& b = tensors.Add(8);
  Registration& c = tensors.Add(8);
  Registration& extra = tensors.Add(8);
  const Round usual = {&large, &a, &b, &c};
  Learn(tail, usual);
  REQUIRE(Play(tail, usual) == Whole(3));
  SECTION("another order") { CHECK(Play(tail, {&large, &a, &c, &b}) == Seen{1, 1, false}); }
  SECTION("one is missing") { CHECK(Play(tail, {&large, &a, &c}) == Seen{1, 1, false}); }
  SECTION("the last is missing") { CHECK(Play(tail, {&large, &a, &b}) == Seen{2, 1, false}); }
  SECTION("one more after it") {
    CHECK(Play(tail, {&large, &a, &b, &c, &extra}) == Seen{3, 1, false});
  }
  SECTION("released, as ringd asked") {
    REQUIRE_FALSE(tail.OnSubmit(large));
    REQUIRE(tail.OnSubmit(a));
    tail.OnReleased();
    CHECK(tail.held() == 0);
    CHECK_FALSE(tail.OnSubmit(b));
    CHECK_FALSE(tail.OnSubmit(c));
    CHECK_FALSE(tail.OnWait());
    // That was a round like the others.
    for (int i = 1; i < StepTail::kAlike; ++i) CHECK(Play(tail, usual) == kNothing);
    CHECK(Play(tail, usual) == Whole(3));
    return;
  }
  Learn(tail, usual);
  CHECK(Play(tail, usual) == Whole(3));
}

TEST_CASE("StepTail: a round without the tail's first tensor is not held, and unlearns it") {
  Tensors tensors;
  StepTail tail(kLimit);
  Registration& large = tensors.Add(kLarge);
  Registration& a = tensors.Add(8);
  Registration& b = tensors.Add(8);
  Learn(tail, {&large, &a, &b});
  CHECK(Play(tail, {&large, &b}) == kNothing);
  CHECK(Play(tail, {&large, &a, &b}) == kNothing);
  CHECK(Play(tail, {&large, &a, &b}) == kNothing);
  CHECK(Play(tail, {&large, &a, &b}) == kNothing);
  CHECK(Play(tail, {&large, &a, &b}) == Whole(2));
}

TEST_CASE("StepTail: a round in which an operation was looked at is left out") {
  Tensors tensors;
  StepTail tail(kLimit);
  const Round round = {&tensors.Add(kLarge), &tensors.Add(8)};
  const auto play_tested = [&] {
    tail.OnTest();
    return Play(tail, round);
  };
  // Neither learned from ...
  for (int i = 0; i < 2 * StepTail::kAlike; ++i) CHECK(play_tested() == kNothing);
  Learn(tail, round);
  // ... nor held, nor does it make the tail another one.
  CHECK(play_tested() == kNothing);
  CHECK(Play(tail, round) == Whole(1));
  // Looked at when it was held already.
  REQUIRE_FALSE(tail.OnSubmit(*round[0]));
  REQUIRE(tail.OnSubmit(*round[1]));
  tail.OnTest();
  tail.OnReleased();
  CHECK_FALSE(tail.OnWait());
  Learn(tail, round);
  CHECK(Play(tail, round) == Whole(1));
}

TEST_CASE("StepTail: kinds of rounds in turn are learned each by itself, up to so many") {
  Tensors tensors;
  StepTail tail(kLimit);
  const std::size_t kinds = GENERATE(2U, StepTail::kMostTails, StepTail::kMostTails + 1);
  std::vector<Round> rounds;
  for (std::size_t kind = 0; kind < kinds; ++kind) {
    rounds.push_back({&tensors.Add(kLarge), &tensors.Add(8), &tensors.Add(8)});
  }
  for (int times = 0; times < StepTail::kAlike; ++times) {
    for (const Round& round : rounds) CHECK(Play(tail, round) == kNothing);
  }
  // Of more kinds in turn the oldest always gives way.
  const Seen then = kinds <= StepTail::kMostTails ? Whole(2) : kNothing;
  for (int times = 0; times < 2; ++times) {
    for (const Round& round : rounds) CHECK(Play(tail, round) == then);
  }
  // The first few of them, once the others are over.
  const Round& first = rounds.front();
  for (int times = 0; times < StepTail::kAlike; ++times) (void)Play(tail, first);
  CHECK(Play(tail, first) == Whole(2));
}

TEST_CASE("StepTail: a tail that begins like another and ends otherwise") {
  Tensors tensors;
  StepTail tail(kLimit);
  Registration& large = tensors.Add(kLarge);
  Registration& shared = tensors.Add(8);
  const Round one = {&large, &shared, &tensors.Add(8)};
  const Round other = {&large, &shared, &tensors.Add(8)};
  for (int i = 1; i < StepTail::kAlike; ++i) {
    CHECK(Play(tail, one) == kNothing);
    CHECK(Play(tail, other) == kNothing);
  }
  CHECK(Play(tail, one) == kNothing);
  // Taken for the one that was learned first; then only the other is left.
  CHECK(Play(tail, other) == Seen{1, 1, false});
  CHECK(Play(tail, other) == Whole(2));
}

TEST_CASE("StepTail: while one of its tensors leaves out the fast path a tail is not held") {
  Tensors tensors;
  StepTail tail(kLimit);
  const Round round = {&tensors.Add(kLarge), &tensors.Add(8), &tensors.Add(8)};
  Learn(tail, round);
  SubmissionCount& submissions = round[2]->submissions;
  SECTION("after it was given up again and again") {
    for (std::uint32_t i = 0; i < SubmissionCount::kMostGivenUp; ++i) {
      submissions.GivenUp(submissions.TakeTurn());
    }
    for (std::uint64_t i = 0; i < SubmissionCount::kLeftOut; ++i) {
      REQUIRE(Play(tail, round) == kNothing);
      submissions.Accepted();
    }
  }
  SECTION("after ringd refused it when it had been counted") {
    submissions.Refused();
    CHECK(Play(tail, round) == kNothing);
    submissions.Accepted();
  }
  CHECK(Play(tail, round) == Whole(2));
}

}  // namespace
}  // namespace ringd::client
