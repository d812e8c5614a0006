// Operations through the C interface: results, failures, full rings, many threads.
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "client/ringd.h"
#include "proto/base/clock.h"
#include "tests/client/fake_ringd.h"
#include "tests/client/test_context.h"

namespace ringd {
namespace {

using Catch::Matchers::Contains;

TEST_CASE("Operation: a tensor in the arena is reduced where it is") {
  FakeRingd ringd;
  TestContext context(ringd);
  float* data = context.Allocate<float>(100);
  for (int i = 0; i < 100; ++i) data[i] = static_cast<float>(i);
  CHECK(ringd_arena_contains(context, data, 400) == 1);
  const ringd_operation operation =
      context.Submit(context.RegisterFloats("in place", 100), data, data);
  REQUIRE(context.Wait(operation) == RINGD_OK);
  for (int i = 0; i < 100; ++i) CHECK(data[i] == static_cast<float>(2 * i));
  const Submission seen = ringd.submissions().at(0);
  CHECK(seen.source_offset == seen.destination_offset);
  CHECK(seen.sequence == 0);
  CHECK(seen.element_count == 100);
  CHECK(seen.submitted_ns > 0);
  CHECK(seen.submitted_ns <= MonotonicNanos());
}

TEST_CASE("Operation: every mix of arena and ordinary memory gives the same result") {
  FakeRingd ringd;
  TestContext context(ringd);
  // The larger one is staged in pieces.
  const std::int64_t kCount = GENERATE(1000, 300'001);
  const ringd_registration registration = context.RegisterFloats("mixed", kCount);
  std::vector<float> ordinary_source(static_cast<std::size_t>(kCount));
  std::vector<float> ordinary_destination(static_cast<std::size_t>(kCount));
  float* arena_source = context.Allocate<float>(kCount);
  float* arena_destination = context.Allocate<float>(kCount);
  const bool source_in_arena = GENERATE(false, true);
  const bool destination_in_arena = GENERATE(false, true);
  const bool in_place = GENERATE(false, true);
  float* source = source_in_arena ? arena_source : ordinary_source.data();
  float* destination = destination_in_arena ? arena_destination : ordinary_destination.data();
  if (in_place) destination = source;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < kCount; ++i) source[i] = static_cast<float>(i + round);
    const ringd_operation operation = context.Submit(registration, source, destination);
    REQUIRE(context.Wait(operation) == RINGD_OK);
    bool right = true;
    for (int i = 0; i < kCount; ++i) {
      right &= destination[i] == static_cast<float>(2 * (i + round));
      if (!in_place) right &= source[i] == static_cast<float>(i + round);
    }
    CHECK(right);
  }
}

TEST_CASE("Operation: the result in ordinary memory appears in the wait and not before") {
  FakeRingd ringd;
  TestContext context(ringd);
  float source = 4;
  float destination = -1;
  const ringd_operation operation =
      context.Submit(context.RegisterFloats("late", 1), &source, &destination);
  // Outside the arena the source is the caller's again at once.
  source = 1000;
  std::int32_t done = 0;
  REQUIRE(
      Eventually([&] { return ringd_test(context, operation, &done) == RINGD_OK && done == 1; }));
  CHECK(destination == -1);
  REQUIRE(context.Wait(operation) == RINGD_OK);
  CHECK(destination == 8);
}

TEST_CASE("Operation: a broadcast reads the root's source and fills the others' destination") {
  FakeRingd ringd;
  const bool is_root = GENERATE(true, false);
  ringd_options options = OptionsFor(ringd);
  options.rank = is_root ? 1 : 0;
  options.size = 2;
  options.local_rank = options.rank;
  options.local_size = 2;
  TestContext context(options);
  const std::int64_t count = 16;
  ringd_tensor tensor = TestContext::FloatTensor("weights", &count);
  tensor.kind = RINGD_BROADCAST;
  tensor.data_type = RINGD_UINT8;
  tensor.root_rank = 1;
  const ringd_registration registration = context.Register(tensor);
  std::vector<unsigned char> source(16, 9);
  std::vector<unsigned char> destination(16, 1);
  const ringd_operation operation =
      context.Submit(registration, is_root ? source.data() : nullptr, destination.data());
  REQUIRE(context.Wait(operation) == RINGD_OK);
  const unsigned char expected = is_root ? 9 : static_cast<unsigned char>(kBroadcastByte);
  CHECK(destination == std::vector<unsigned char>(16, expected));
}

TEST_CASE("Operation: a ping comes back, or says that ringd does not answer") {
  FakeRingd ringd;
  TestContext context(ringd);
  CHECK(ringd_ping(context, 10'000) == RINGD_OK);
  ringd.Hold();
  CHECK(ringd_ping(context, 10) == RINGD_DEADLINE_EXCEEDED);
  CHECK_THAT(ringd_last_error(), Contains("has not answered within 10 ms"));
  ringd.Release();
  CHECK(ringd_ping(context, 10'000) == RINGD_OK);
}

TEST_CASE("Operation: a ping that is late is waited for before another one is sent") {
  FakeRingd ringd;
  TestContext context(ringd);
  ringd.Hold();
  for (int i = 0; i < 5; ++i) CHECK(ringd_ping(context, 10) == RINGD_DEADLINE_EXCEEDED);
  REQUIRE(Eventually([&] { return !ringd.submissions().empty(); }));
  ringd.Release();
  CHECK(ringd_ping(context, 10'000) == RINGD_OK);
  CHECK(ringd.submissions().size() == 2);
  CHECK(ringd_ping(context, 10'000) == RINGD_OK);
  CHECK(ringd.submissions().size() == 3);
}

TEST_CASE("Operation: barriers and empty tensors take null pointers") {
  FakeRingd ringd;
  TestContext context(ringd);
  ringd_tensor barrier{};
  barrier.struct_size = sizeof(barrier);
  barrier.name = "all here";
  barrier.kind = RINGD_BARRIER;
  CHECK(context.Wait(context.Submit(context.Register(barrier), nullptr, nullptr)) == RINGD_OK);
  CHECK(context.Wait(context.Submit(context.RegisterFloats("none", 0), nullptr, nullptr)) ==
        RINGD_OK);
  CHECK(ringd.submissions().at(1).element_count == 0);
}

TEST_CASE("Operation: a failure gives code and words to each operation, whatever came later") {
  FakeRingdSettings settings;
  settings.submission_capacity = 32;
  FakeRingd ringd(settings);
  TestContext context(ringd);
  const ringd_registration registration = context.RegisterFloats("broken", 1);
  ringd.FailOperations(absl::AbortedError("rank 3, pid 4711 on node-b, was killed"));
  float value = 5;
  const ringd_operation failed = context.Submit(registration, &value, &value);
  std::int32_t done = 0;
  REQUIRE(Eventually([&] { return ringd_test(context, failed, &done) == RINGD_OK && done == 1; }));
  // Reuses every slot of the error texts.
  ringd.FailOperations(absl::InvalidArgumentError("other words"));
  for (int i = 0; i < 200; ++i) {
    CHECK(context.Wait(context.Submit(registration, &value, &value)) == RINGD_INVALID_ARGUMENT);
    CHECK(std::string(ringd_last_error()) == "other words");
  }
  CHECK(context.Wait(failed) == RINGD_ABORTED);
  CHECK(std::string(ringd_last_error()) == "rank 3, pid 4711 on node-b, was killed");
  CHECK(value == 5);
  // The context is as good as before.
  ringd.FailOperations(absl::OkStatus());
  CHECK(context.Wait(context.Submit(registration, &value, &value)) == RINGD_OK);
  CHECK(value == 10);
}

TEST_CASE("Operation: a wait that times out leaves it in flight; a finished one is consumed") {
  FakeRingd ringd;
  TestContext context(ringd);
  const ringd_registration registration = context.RegisterFloats("slow", 1);
  ringd.Hold();
  float value = 1;
  const ringd_operation operation = context.Submit(registration, &value, &value);
  CHECK(ringd_wait(context, operation, 0) == RINGD_DEADLINE_EXCEEDED);
  CHECK(ringd_wait(context, operation, 30) == RINGD_DEADLINE_EXCEEDED);
  CHECK_THAT(ringd_last_error(), Contains("still in flight after 30 ms"));
  std::int32_t done = 1;
  CHECK(ringd_test(context, operation, &done) == RINGD_OK);
  CHECK(done == 0);
  ringd.Release();
  CHECK(context.Wait(operation) == RINGD_OK);
  CHECK(value == 2);
  CHECK(context.Wait(operation) == RINGD_NOT_FOUND);
  CHECK(ringd_test(context, operation, &done) == RINGD_NOT_FOUND);
  CHECK(context.Wait(0) == RINGD_NOT_FOUND);
  CHECK(context.Wait(operation + 1) == RINGD_NOT_FOUND);
}

TEST_CASE("Operation: one that ran into ringd's deadline is aborted, not 'still in flight'") {
  FakeRingd ringd;
  TestContext context(ringd);
  ringd.FailOperations(absl::DeadlineExceededError("rank 1 has not submitted 'x' for 30 s"));
  float value = 1;
  CHECK(context.Wait(context.Submit(context.RegisterFloats("x", 1), &value, &value)) ==
        RINGD_ABORTED);
  CHECK_THAT(ringd_last_error(), Contains("rank 1 has not submitted"));
}

TEST_CASE("Operation: with the ring full, trying says so and submitting waits for room") {
  FakeRingdSettings settings;
  settings.submission_capacity = 8;
  FakeRingd ringd(settings);
  TestContext context(ringd);
  const ringd_registration registration = context.RegisterFloats("many", 1);
  ringd.Hold();
  float* values = context.Allocate<float>(9);
  std::fill(values, values + 9, 1.0f);
  std::vector<ringd_operation> operations(9);
  for (int i = 0; i < 8; ++i) {
    REQUIRE(ringd_try_submit(context, registration, values + i, values + i, &operations[i]) ==
            RINGD_OK);
  }
  CHECK(ringd_try_submit(context, registration, values + 8, values + 8, &operations[8]) ==
        RINGD_RESOURCE_EXHAUSTED);
  CHECK_THAT(ringd_last_error(), Contains("8 operations are in flight") && Contains("'many'"));
  std::atomic<bool> submitted{false};
  ringd_status status = RINGD_INTERNAL;
  std::thread submitter([&] {
    status = ringd_submit(context, registration, values + 8, values + 8, &operations[8]);
    submitted = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK_FALSE(submitted);
  ringd.Release();
  submitter.join();
  CHECK(status == RINGD_OK);
  for (const ringd_operation operation : operations) CHECK(context.Wait(operation) == RINGD_OK);
  CHECK(std::accumulate(values, values + 9, 0.0f) == 18.0f);
}

TEST_CASE(
    "Operation: those that are not waited for don't hold up the ring, and keep their results") {
  FakeRingdSettings settings;
  settings.submission_capacity = 4;
  FakeRingd ringd(settings);
  TestContext context(ringd);
  const ringd_registration registration = context.RegisterFloats("unwaited", 1);
  std::vector<float> values(50, 3.0f);
  std::vector<ringd_operation> operations;
  for (float& value : values) operations.push_back(context.Submit(registration, &value, &value));
  for (const ringd_operation operation : operations) CHECK(context.Wait(operation) == RINGD_OK);
  CHECK(values == std::vector<float>(50, 6.0f));
}

TEST_CASE("Operation: a submission that waits for room can be interrupted, and is none then") {
  FakeRingdSettings settings;
  settings.submission_capacity = 4;
  FakeRingd ringd(settings);
  std::atomic<int> asked{0};
  ringd_options options = OptionsFor(ringd);
  options.user_data = &asked;
  options.is_interrupted = [](void* data) -> std::int32_t {
    return static_cast<std::atomic<int>*>(data)->fetch_add(1) == 2 ? 1 : 0;
  };
  TestContext context(options);
  const ringd_registration registration = context.RegisterFloats("interrupted", 1);
  ringd.Hold();
  std::vector<float> values(6, 3.0f);
  std::vector<ringd_operation> operations;
  for (int i = 0; i < 4; ++i) {
    operations.push_back(context.Submit(registration, &values[i], &values[i]));
  }
  asked = 0;
  ringd_operation none = 0;
  CHECK(ringd_submit(context, registration, &values[4], &values[4], &none) == RINGD_CANCELLED);
  CHECK_THAT(ringd_last_error(), Contains("interrupted"));
  CHECK(asked == 3);
  ringd.Release();
  for (const ringd_operation operation : operations) CHECK(context.Wait(operation) == RINGD_OK);
  CHECK(values[4] == 3.0f);
  CHECK(context.Wait(context.Submit(registration, &values[5], &values[5])) == RINGD_OK);
  CHECK(ringd.submissions().size() == 5);
}

TEST_CASE("Operation: one that stalls lets later ones pass, a whole turn of the ring and more") {
  FakeRingdSettings settings;
  settings.submission_capacity = 4;
  FakeRingd ringd(settings);
  TestContext context(ringd);
  const ringd_registration registration = context.RegisterFloats("stalled", 1);
  ringd.Hold();
  float stalled_value = 1;
  const ringd_operation stalled = context.Submit(registration, &stalled_value, &stalled_value);
  REQUIRE(Eventually([&] { return ringd.submissions().size() == 1; }));
  // From here on the test is the engine: the stalled operation stays, the others end by hand.
  for (std::uint64_t sequence = 1; sequence < 20; ++sequence) {
    float value = 1;
    const ringd_operation operation = context.Submit(registration, &value, &value);
    ringd.PushCompletion(sequence, 0);
    REQUIRE(context.Wait(operation) == RINGD_OK);
  }
  CHECK(ringd_wait(context, stalled, 0) == RINGD_DEADLINE_EXCEEDED);
  ringd.PushCompletion(0, 0);
  CHECK(context.Wait(stalled) == RINGD_OK);
}

TEST_CASE("Operation: a completion that nobody waits for ends the session with a reason") {
  FakeRingd ringd;
  TestContext context(ringd);
  const ringd_registration registration = context.RegisterFloats("x", 1);
  ringd.Hold();
  float value = 1;
  const ringd_operation operation = context.Submit(registration, &value, &value);
  ringd.PushCompletion(GENERATE(std::uint64_t{1}, std::uint64_t{77}, std::uint64_t{1} << 60), 0);
  CHECK(context.Wait(operation) == RINGD_INTERNAL);
  CHECK_THAT(ringd_last_error(), Contains("which is not in flight"));
}

TEST_CASE("Operation: eight threads submit and wait at once and every sum is right") {
  FakeRingdSettings settings;
  settings.submission_capacity = 16;
  FakeRingd ringd(settings);
  TestContext context(ringd);
  constexpr int kThreads = 8;
  constexpr int kRounds = 400;
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    const std::string name = "thread " + std::to_string(t);
    const ringd_registration registration = context.RegisterFloats(name.c_str(), 3);
    threads.emplace_back([&, t, registration] {
      // Two at a time, so that fewer fit into the ring than are wanted.
      std::vector<float> first(3), second(3);
      for (int round = 0; round < kRounds; ++round) {
        const float value = static_cast<float>(t * kRounds + round);
        first.assign(3, value);
        second.assign(3, value + 0.5f);
        ringd_operation a = 0, b = 0, c = 0;
        float third[3] = {value, value, value};
        bool right =
            ringd_submit(context, registration, first.data(), first.data(), &a) == RINGD_OK &&
            ringd_submit(context, registration, second.data(), second.data(), &b) == RINGD_OK &&
            ringd_submit(context, registration, third, third, &c) == RINGD_OK;
        right = right && ringd_wait(context, b, kPatienceMs) == RINGD_OK &&
                ringd_wait(context, a, kPatienceMs) == RINGD_OK &&
                ringd_wait(context, c, kPatienceMs) == RINGD_OK;
        right =
            right && first[2] == 2 * value && second[0] == 2 * value + 1 && third[1] == 2 * value;
        if (!right) ++wrong;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("Operation: a sleeping engine is woken by its eventfd") {
  FakeRingd ringd;
  TestContext context(ringd);
  const ringd_registration registration = context.RegisterFloats("wake", 1);
  // Without a wake-up the engine would sleep for five seconds.
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  float value = 1;
  const auto start = Clock::now();
  REQUIRE(context.Wait(context.Submit(registration, &value, &value)) == RINGD_OK);
  CHECK(Clock::now() - start < std::chrono::seconds(4));
  CHECK(ringd.wakeups() >= 1);
}

TEST_CASE("Operation: wrong use is refused in words, and nothing is sent") {
  FakeRingd ringd;
  TestContext context(ringd);
  const ringd_registration registration = context.RegisterFloats("careful", 4);
  float* data = context.Allocate<float>(8);
  ringd_operation operation = 0;
  CHECK(ringd_submit(context, 99, data, data, &operation) == RINGD_NOT_FOUND);
  CHECK_THAT(ringd_last_error(), Contains("no registration 99"));
  CHECK(ringd_submit(context, registration, nullptr, data, &operation) == RINGD_INVALID_ARGUMENT);
  CHECK_THAT(ringd_last_error(), Contains("'careful'") && Contains("source is NULL"));
  CHECK(ringd_submit(context, registration, data, nullptr, &operation) == RINGD_INVALID_ARGUMENT);
  CHECK(ringd_submit(context, registration, data, data + 2, &operation) == RINGD_INVALID_ARGUMENT);
  CHECK_THAT(ringd_last_error(), Contains("overlap"));
  CHECK(ringd_submit(context, registration, data, data, nullptr) == RINGD_INVALID_ARGUMENT);
  const std::int64_t huge = 64 << 20;
  const ringd_registration too_large = context.Register(TestContext::FloatTensor("huge", &huge));
  CHECK(ringd_submit(context, too_large, data, data, &operation) == RINGD_INVALID_ARGUMENT);
  CHECK_THAT(ringd_last_error(), Contains("beyond the arena"));
  CHECK(ringd.submissions().empty());
}

}  // namespace
}  // namespace ringd
