// Waiting for many operations in one call.
#include <catch2/catch.hpp>
#include <string>
#include <thread>
#include <vector>

#include "client/ringd.h"
#include "tests/client/fake_ringd.h"
#include "tests/client/test_context.h"

namespace ringd {
namespace {

using Catch::Matchers::Contains;

ringd_status WaitAll(const TestContext& context, std::vector<ringd_operation>& operations,
                     std::int64_t timeout_ms = kPatienceMs) {
  return ringd_wait_all(context, operations.data(), operations.size(), timeout_ms);
}

// Operation i of a sum of one number, which is i.
struct Numbers {
  Numbers(TestContext& context, std::size_t count, bool in_arena)
      : ordinary(count), values(in_arena ? context.Allocate<float>(count) : ordinary.data()) {
    const ringd_registration registration = context.RegisterFloats("number", 1);
    for (std::size_t i = 0; i < count; ++i) {
      values[i] = static_cast<float>(i);
      operations.push_back(context.Submit(registration, values + i, values + i));
    }
  }
  bool AreDoubled() const {
    for (std::size_t i = 0; i < operations.size(); ++i) {
      if (values[i] != static_cast<float>(2 * i)) return false;
    }
    return true;
  }

  std::vector<float> ordinary;
  float* values;
  std::vector<ringd_operation> operations;
};

TEST_CASE("WaitAll: all results are there, whatever the memory, also of more than the ring holds") {
  FakeRingdSettings settings;
  settings.submission_capacity = 16;
  FakeRingd ringd(settings);
  TestContext context(ringd);
  const bool in_arena = GENERATE(true, false);
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{300}}) {
    Numbers numbers(context, count, in_arena);
    CHECK(WaitAll(context, numbers.operations) == RINGD_OK);
    CHECK(numbers.AreDoubled());
    CHECK(numbers.operations == std::vector<ringd_operation>(count, RINGD_DONE));
    // Nothing is left to be waited for.
    CHECK(WaitAll(context, numbers.operations, 0) == RINGD_OK);
  }
}

TEST_CASE("WaitAll: sleeps until the last has ended") {
  FakeRingd ringd;
  TestContext context(ringd);
  ringd.Hold();
  Numbers numbers(context, 20, true);
  ringd_status status = RINGD_INTERNAL;
  std::thread waiter([&] { status = WaitAll(context, numbers.operations); });
  ringd.Release();
  waiter.join();
  CHECK(status == RINGD_OK);
  CHECK(numbers.AreDoubled());
}

TEST_CASE("WaitAll: when its time is up nothing is lost") {
  FakeRingd ringd;
  TestContext context(ringd);
  Numbers first(context, 3, true);
  REQUIRE(WaitAll(context, first.operations) == RINGD_OK);
  ringd.Hold();
  Numbers held(context, 3, true);
  std::vector<ringd_operation> mixed = {RINGD_DONE, held.operations[0], held.operations[1],
                                        held.operations[2]};
  const std::vector<ringd_operation> before = mixed;
  CHECK(WaitAll(context, mixed, 0) == RINGD_DEADLINE_EXCEEDED);
  CHECK(WaitAll(context, mixed, 20) == RINGD_DEADLINE_EXCEEDED);
  CHECK_THAT(ringd_last_error(), Contains("still in flight after 20 ms"));
  CHECK(mixed == before);
  ringd.Release();
  CHECK(WaitAll(context, mixed) == RINGD_OK);
  CHECK(held.AreDoubled());
}

TEST_CASE("WaitAll: of failures the first is told, after all have ended, and the rest is as good") {
  FakeRingd ringd;
  TestContext context(ringd);
  Numbers good(context, 2, true);
  REQUIRE(Eventually([&] { return ringd.submissions().size() == 2; }));
  const auto fail = [&](const char* words) {
    ringd.FailOperations(absl::AbortedError(words));
    Numbers one(context, 1, true);
    std::int32_t done = 0;
    REQUIRE(Eventually(
        [&] { return ringd_test(context, one.operations[0], &done) == RINGD_OK && done == 1; }));
    return one.operations[0];
  };
  const ringd_operation second = fail("the second");
  const ringd_operation first = fail("the first");
  ringd.FailOperations(absl::OkStatus());
  ringd.Hold();
  Numbers late(context, 1, true);
  std::vector<ringd_operation> all = {good.operations[0], first, good.operations[1], second,
                                      late.operations[0]};
  // As long as one is in flight, failures stay to be told.
  CHECK(WaitAll(context, all, 0) == RINGD_DEADLINE_EXCEEDED);
  CHECK(all ==
        std::vector<ringd_operation>{RINGD_DONE, first, RINGD_DONE, second, late.operations[0]});
  ringd.Release();
  CHECK(WaitAll(context, all) == RINGD_ABORTED);
  CHECK(std::string(ringd_last_error()) == "the first");
  CHECK(all == std::vector<ringd_operation>{RINGD_DONE, 0, RINGD_DONE, 0, RINGD_DONE});
  CHECK(good.AreDoubled());
  CHECK(late.AreDoubled());
}

TEST_CASE("WaitAll: wrong use is refused in words, and what is right in it is waited for") {
  FakeRingd ringd;
  TestContext context(ringd);
  Numbers numbers(context, 2, true);
  std::vector<ringd_operation> mixed = {0, numbers.operations[0], 4711, numbers.operations[1],
                                        numbers.operations[1]};
  CHECK(WaitAll(context, mixed) == RINGD_NOT_FOUND);
  CHECK_THAT(ringd_last_error(), Contains("operation 0 does not exist"));
  CHECK(mixed == std::vector<ringd_operation>{0, RINGD_DONE, 0, RINGD_DONE, 0});
  CHECK(numbers.AreDoubled());
  CHECK(ringd_wait_all(context, nullptr, 1, 0) == RINGD_INVALID_ARGUMENT);
  CHECK(ringd_wait_all(context, nullptr, 0, 0) == RINGD_OK);
  CHECK(ringd_wait_all(nullptr, mixed.data(), 1, 0) == RINGD_INVALID_ARGUMENT);
}

TEST_CASE("WaitAll: ends with the reason when the context does") {
  FakeRingd ringd;
  TestContext context(ringd);
  ringd.Hold();
  Numbers numbers(context, 5, true);
  ringd_status status = RINGD_OK;
  std::string words;
  std::thread waiter([&] {
    status = WaitAll(context, numbers.operations);
    words = ringd_last_error();
  });
  CHECK(ringd_leave(context) == RINGD_OK);
  waiter.join();
  CHECK(status == RINGD_CANCELLED);
  CHECK_FALSE(words.empty());
  CHECK(numbers.operations == std::vector<ringd_operation>(5, 0));
}

}  // namespace
}  // namespace ringd
