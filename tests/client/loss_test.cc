// The ways in which a context ends before its time: ringd dies, ends the session, or the job fails.
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <mutex>
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

TEST_CASE("Loss: ringd's death wakes every waiter at once with a clear error") {
  FakeRingd ringd;
  TestContext context(ringd);
  ringd.Hold();
  constexpr int kWaiters = 4;
  const ringd_registration registration = context.RegisterFloats("lost", 1);
  float values[kWaiters] = {};
  std::vector<std::thread> waiters;
  std::atomic<int> waiting{0};
  ringd_status statuses[kWaiters] = {};
  std::string texts[kWaiters];
  Clock::time_point ended[kWaiters];
  for (int i = 0; i < kWaiters; ++i) {
    const ringd_operation operation = context.Submit(registration, &values[i], &values[i]);
    waiters.emplace_back([&, i, operation] {
      ++waiting;
      statuses[i] = ringd_wait(context, operation, kPatienceMs);
      ended[i] = Clock::now();
      texts[i] = ringd_last_error();
    });
  }
  REQUIRE(Eventually([&] { return waiting == kWaiters; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  const auto death = Clock::now();
  ringd.Die();
  for (auto& waiter : waiters) waiter.join();
  for (int i = 0; i < kWaiters; ++i) {
    CHECK(statuses[i] == RINGD_UNAVAILABLE);
    CHECK_THAT(texts[i], Contains("ringd (pid ") && Contains("on fake-node has gone"));
    CHECK(ended[i] - death < std::chrono::milliseconds(kPatienceMs / 2));
  }
  // Everything later fails with the same words, at once.
  float value = 1;
  ringd_operation operation = 0;
  CHECK(ringd_submit(context, registration, &value, &value, &operation) == RINGD_UNAVAILABLE);
  CHECK_THAT(ringd_last_error(), Contains("has gone"));
  const std::int64_t count = 2;
  const ringd_tensor tensor = TestContext::FloatTensor("new", &count);
  ringd_registration number = 0;
  CHECK(ringd_register(context, &tensor, 1, &number) == RINGD_UNAVAILABLE);
}

TEST_CASE("Loss: a submitter that waits for room is woken by ringd's death") {
  FakeRingdSettings settings;
  settings.submission_capacity = 2;
  FakeRingd ringd(settings);
  TestContext context(ringd);
  ringd.Hold();
  const ringd_registration registration = context.RegisterFloats("full", 1);
  float values[3] = {};
  context.Submit(registration, &values[0], &values[0]);
  context.Submit(registration, &values[1], &values[1]);
  ringd_status status = RINGD_OK;
  std::thread submitter([&] {
    ringd_operation operation = 0;
    status = ringd_submit(context, registration, &values[2], &values[2], &operation);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  ringd.Die();
  submitter.join();
  CHECK(status == RINGD_UNAVAILABLE);
}

TEST_CASE("Loss: what had completed before ringd died is still a success") {
  FakeRingd ringd;
  TestContext context(ringd);
  float value = 3;
  const ringd_operation operation =
      context.Submit(context.RegisterFloats("done", 1), &value, &value);
  std::int32_t done = 0;
  REQUIRE(
      Eventually([&] { return ringd_test(context, operation, &done) == RINGD_OK && done == 1; }));
  ringd.Die();
  CHECK(context.Wait(operation) == RINGD_OK);
  CHECK(value == 6);
}

TEST_CASE("Loss: ringd's reason for ending the session is what calls return") {
  FakeRingd ringd;
  TestContext context(ringd);
  ringd.Hold();
  float value = 1;
  const ringd_operation operation = context.Submit(context.RegisterFloats("x", 1), &value, &value);
  ringd.SendNotice(NoticeKind::kSessionEnded, "submission 7 lies outside the arena");
  ringd.Die();
  CHECK(context.Wait(operation) == RINGD_UNAVAILABLE);
  CHECK_THAT(ringd_last_error(),
             Contains("has ended this session") && Contains("submission 7 lies outside the arena"));
}

TEST_CASE("Loss: after the job's failure ringd's own completions carry the words") {
  FakeRingd ringd;
  TestContext context(ringd);
  const ringd_registration registration = context.RegisterFloats("x", 1);
  ringd.Hold();
  float value = 1;
  const ringd_operation operation = context.Submit(registration, &value, &value);
  ringd.FailOperations(absl::AbortedError("rank 2 was killed while 'x' was in flight"));
  ringd.SendNotice(NoticeKind::kFailure, "rank 2 was killed");
  std::thread releaser([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    ringd.Release();
  });
  CHECK(context.Wait(operation) == RINGD_ABORTED);
  CHECK(std::string(ringd_last_error()) == "rank 2 was killed while 'x' was in flight");
  releaser.join();
  ringd_operation next = 0;
  CHECK(ringd_submit(context, registration, &value, &value, &next) == RINGD_ABORTED);
  CHECK(std::string(ringd_last_error()) == "rank 2 was killed");
}

TEST_CASE("Loss: operations that ringd forgets after the job's failure end with the root cause") {
  FakeRingd ringd;
  TestContext context(ringd);
  ringd.Hold();
  float value = 1;
  const ringd_operation operation = context.Submit(context.RegisterFloats("x", 1), &value, &value);
  ringd.SendNotice(NoticeKind::kFailure, "rank 2 was killed");
  const auto start = Clock::now();
  CHECK(context.Wait(operation) == RINGD_ABORTED);
  CHECK(std::string(ringd_last_error()) == "rank 2 was killed");
  CHECK(Clock::now() - start < std::chrono::seconds(10));
  // Its completion comes after all: too late, but no breach of the rules.
  ringd.Release();
  ringd.Die();
  CHECK(context.Wait(operation) == RINGD_NOT_FOUND);
}

TEST_CASE("Loss: a failure's root cause outlives the loss of ringd that follows") {
  FakeRingd ringd;
  TestContext context(ringd);
  ringd.Hold();
  const ringd_registration registration = context.RegisterFloats("x", 1);
  float value = 1;
  const ringd_operation operation = context.Submit(registration, &value, &value);
  ringd.SendNotice(NoticeKind::kFailure, "node-b has gone");
  ringd.Die();
  CHECK(context.Wait(operation) == RINGD_ABORTED);
  CHECK(std::string(ringd_last_error()) == "node-b has gone");
}

TEST_CASE("Loss: that ringd broke the rules ends also the wait for a communicator's memory") {
  FakeRingd ringd;
  TestContext context(ringd);
  const ringd_communicator_options options = CommunicatorOfOne("node.a");
  ringd_status status = RINGD_OK;
  Clock::time_point ended;
  std::thread creator([&] {
    ringd_communicator communicator = 0;
    status = ringd_communicator_create(context, &options, &communicator);
    ended = Clock::now();
  });
  // It has been made, then, and its memory does not come.
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  ringd.PushCompletion(77, 0);
  const auto start = Clock::now();
  // Who looks for completions finds it, even if its own has come.
  static_cast<void>(ringd_ping(context, kPatienceMs));
  CHECK(ringd_ping(context, kPatienceMs) == RINGD_INTERNAL);
  creator.join();
  CHECK(status == RINGD_INTERNAL);
  // Once a second the session is looked at; the memory would be waited for 10 s.
  CHECK(ended - start < std::chrono::seconds(6));
}

TEST_CASE("Notices: warnings reach the callback whole and in order; unknown kinds are skipped") {
  FakeRingd ringd;
  struct Log {
    std::mutex mutex;
    std::vector<std::string> lines;
  } log;
  ringd_options options = OptionsFor(ringd);
  options.user_data = &log;
  options.on_warning = [](void* user_data, const char* text) {
    auto* target = static_cast<Log*>(user_data);
    std::lock_guard lock(target->mutex);
    target->lines.emplace_back(text);
  };
  TestContext context(options);
  const std::string longest(kMaxNoticeBytes, 'w');
  ringd.SendNotice(NoticeKind::kWarning, "waiting for rank 1");
  ringd.SendNotice(99, "from the future");
  ringd.SendNotice(NoticeKind::kWarning, longest);
  // In two pieces.
  const NoticeHeader header{static_cast<std::uint32_t>(NoticeKind::kWarning), 4};
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
  ringd.SendRaw(bytes + "la");
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  ringd.SendRaw("st");
  REQUIRE(Eventually([&] {
    std::lock_guard lock(log.mutex);
    return log.lines.size() >= 3;
  }));
  std::lock_guard lock(log.mutex);
  CHECK(log.lines == std::vector<std::string>{"waiting for rank 1", longest, "last"});
}

TEST_CASE("Notices: nonsense on the lifeline ends the session") {
  FakeRingd ringd;
  TestContext context(ringd);
  ringd.Hold();
  float value = 1;
  const ringd_operation operation = context.Submit(context.RegisterFloats("x", 1), &value, &value);
  ringd.SendNotice(1, std::string(kMaxNoticeBytes + 1, 'x'));
  CHECK(context.Wait(operation) == RINGD_UNAVAILABLE);
}

TEST_CASE("Loss: closing with operations in flight does not hang, and ringd is told") {
  FakeRingd ringd;
  const auto start = Clock::now();
  {
    TestContext context(ringd);
    ringd.Hold();
    std::vector<float> values(100, 1.0f);
    context.Submit(context.RegisterFloats("x", 100), values.data(), values.data());
  }
  CHECK(Clock::now() - start < std::chrono::seconds(10));
  CHECK(ringd.leave_calls() == 1);
}

}  // namespace
}  // namespace ringd
