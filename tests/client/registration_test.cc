// Describing tensors, and the memory behind them, through the C interface.
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "client/ringd.h"
#include "tests/client/fake_ringd.h"
#include "tests/client/test_context.h"

namespace ringd {
namespace {

using Catch::Matchers::Contains;

TEST_CASE("Registration: an equal description gives the same number without a call") {
  FakeRingd ringd;
  TestContext context(ringd);
  const ringd_registration first = context.RegisterFloats("a", 4);
  CHECK(ringd.register_calls() == 1);
  CHECK(context.RegisterFloats("a", 4) == first);
  CHECK(ringd.register_calls() == 1);
  CHECK(context.RegisterFloats("a", 5) != first);
  CHECK(ringd.register_calls() == 2);
}

// The segment of a communicator's memory, without a descriptor.
void SendNoSegment(FakeRingd& ringd, std::uint32_t communicator) {
  JobSegmentNotice notice{};
  notice.communicator = communicator;
  ringd.SendNotice(NoticeKind::kJobSegment,
                   std::string(reinterpret_cast<const char*>(&notice), sizeof(notice)));
}

TEST_CASE("Communicator: one that can't be used here is given back to ringd") {
  FakeRingd ringd;
  TestContext context(ringd);
  ringd_communicator_options options = CommunicatorOfOne("node.a");
  ringd_communicator communicator = 0;
  // ringd would refuse the second one if this rank were still in the first.
  for (std::uint32_t number = 1; number <= 2; ++number) {
    SendNoSegment(ringd, number);
    CHECK(ringd_communicator_create(context, &options, &communicator) == RINGD_INTERNAL);
    CHECK_THAT(ringd_last_error(), Contains("no descriptor"));
  }
  // Its lane needs no memory.
  options.name = "wide";
  REQUIRE(ringd_communicator_create(context, &options, &communicator) == RINGD_OK);
  CHECK(ringd_communicator_create(context, &options, &communicator) != RINGD_OK);
  CHECK(ringd_communicator_destroy(context, communicator) == RINGD_OK);
}

TEST_CASE("Registration: many tensors take one call, also when some are known or named twice") {
  FakeRingd ringd;
  TestContext context(ringd);
  const ringd_registration known = context.RegisterFloats("b", 1);
  const std::int64_t count = 1;
  const ringd_tensor tensors[4] = {
      TestContext::FloatTensor("a", &count), TestContext::FloatTensor("b", &count),
      TestContext::FloatTensor("c", &count), TestContext::FloatTensor("a", &count)};
  ringd_registration numbers[4] = {};
  REQUIRE(ringd_register(context, tensors, 4, numbers) == RINGD_OK);
  CHECK(ringd.register_calls() == 2);
  CHECK(numbers[1] == known);
  CHECK(numbers[0] == numbers[3]);
  CHECK(numbers[0] != numbers[2]);
  CHECK(ringd_register(context, nullptr, 0, nullptr) == RINGD_OK);
}

TEST_CASE("Registration: thousands at once go in messages that gRPC takes, without a pause") {
  FakeRingd ringd;
  TestContext context(ringd);
  constexpr std::size_t kCount = 9000;
  const std::int64_t count = 1;
  // Names as long as they may be: in one message these would be more than gRPC's 4 MiB.
  std::vector<std::string> names;
  std::vector<ringd_tensor> tensors;
  for (std::size_t i = 0; i < kCount; ++i) {
    names.push_back(std::to_string(i) + std::string(500, 'n'));
  }
  for (const std::string& name : names) {
    tensors.push_back(TestContext::FloatTensor(name.c_str(), &count));
  }
  std::vector<ringd_registration> numbers(kCount);
  const auto start = std::chrono::steady_clock::now();
  const ringd_status status = ringd_register(context, tensors.data(), kCount, numbers.data());
  INFO(ringd_last_error());
  REQUIRE(status == RINGD_OK);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(20));
  float value = 4;
  REQUIRE(context.Wait(context.Submit(numbers[kCount - 1], &value, &value)) == RINGD_OK);
  CHECK(value == 8);
}

TEST_CASE("Registration: one wrong description refuses all of them and asks ringd nothing") {
  FakeRingd ringd;
  TestContext context(ringd);
  const std::int64_t count = 1;
  const std::int64_t negative = -1;
  const ringd_tensor tensors[2] = {TestContext::FloatTensor("good", &count),
                                   TestContext::FloatTensor("bad", &negative)};
  ringd_registration numbers[2] = {77, 78};
  CHECK(ringd_register(context, tensors, 2, numbers) == RINGD_INVALID_ARGUMENT);
  CHECK_THAT(ringd_last_error(), Contains("'bad'"));
  CHECK(numbers[0] == 77);
  CHECK(ringd.register_calls() == 0);
  ringd_tensor short_one = TestContext::FloatTensor("short", &count);
  short_one.struct_size = 8;
  CHECK(ringd_register(context, &short_one, 1, numbers) == RINGD_INVALID_ARGUMENT);
  CHECK_THAT(ringd_last_error(), Contains("struct_size"));
}

TEST_CASE("Registration: a caller with longer structures is understood") {
  FakeRingd ringd;
  TestContext context(ringd);
  struct Later {
    ringd_tensor tensor;
    std::int64_t addition;
  };
  const std::int64_t count = 2;
  Later later[2] = {{TestContext::FloatTensor("one", &count), 1},
                    {TestContext::FloatTensor("two", &count), 2}};
  for (Later& each : later) each.tensor.struct_size = sizeof(Later);
  ringd_registration numbers[2] = {};
  REQUIRE(ringd_register(context, &later[0].tensor, 2, numbers) == RINGD_OK);
  CHECK(numbers[0] == context.RegisterFloats("one", 2));
  CHECK(numbers[1] == context.RegisterFloats("two", 2));
}

TEST_CASE("Registration: threads that describe the same tensor at once get one number") {
  FakeRingd ringd;
  TestContext context(ringd);
  constexpr int kThreads = 6;
  ringd_registration numbers[kThreads] = {};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const std::int64_t count = 9;
      const ringd_tensor tensor = TestContext::FloatTensor("shared", &count);
      ringd_register(context, &tensor, 1, &numbers[t]);
    });
  }
  for (auto& thread : threads) thread.join();
  for (const ringd_registration number : numbers) {
    CHECK(number != 0);
    CHECK(number == numbers[0]);
  }
}

TEST_CASE("Unregister: a number in use is refused with words, and afterwards it is gone") {
  FakeRingd ringd;
  TestContext context(ringd);
  std::vector<float> values(100, 1.0f);
  const ringd_registration used = context.RegisterFloats("used", 100);
  const ringd_registration idle = context.RegisterFloats("idle", 100);
  const ringd_registration both[] = {idle, used};
  ringd.Hold();
  const ringd_operation held = context.Submit(used, values.data(), values.data());
  CHECK(ringd_unregister(context, both, 2) == RINGD_FAILED_PRECONDITION);
  CHECK_THAT(ringd_last_error(), Contains("registration " + std::to_string(used)) &&
                                     Contains("'used'") && Contains("in use"));
  ringd.Release();
  REQUIRE(Eventually([&] {
    std::int32_t done = 0;
    return ringd_test(context, held, &done) == RINGD_OK && done == 1;
  }));
  // It has ended, but nobody has waited for it.
  CHECK(ringd_unregister(context, both, 2) == RINGD_FAILED_PRECONDITION);
  CHECK(context.Wait(held) == RINGD_OK);
  const ringd_registration twice[] = {idle, idle};
  CHECK(ringd_unregister(context, twice, 2) == RINGD_INVALID_ARGUMENT);
  // What was refused has changed nothing.
  CHECK(context.Wait(context.Submit(idle, values.data(), values.data())) == RINGD_OK);

  CHECK(ringd_unregister(context, both, 2) == RINGD_OK);
  ringd_operation refused = 0;
  CHECK(ringd_submit(context, used, values.data(), values.data(), &refused) == RINGD_NOT_FOUND);
  CHECK_THAT(ringd_last_error(), Contains("registration " + std::to_string(used)));
  CHECK(ringd_unregister(context, both, 2) == RINGD_NOT_FOUND);
  CHECK_THAT(ringd_last_error(), Contains("registration " + std::to_string(idle)));
  CHECK(ringd_unregister(context, nullptr, 0) == RINGD_OK);
  CHECK(ringd_unregister(context, nullptr, 1) == RINGD_INVALID_ARGUMENT);

  const ringd_registration again = context.RegisterFloats("used", 100);
  CHECK(again != used);
  CHECK(context.Wait(context.Submit(again, values.data(), values.data())) == RINGD_OK);
}

TEST_CASE("Staging: in the steady state ordinary memory always takes the same block") {
  FakeRingd ringd;
  TestContext context(ringd);
  const ringd_registration registration = context.RegisterFloats("steady", 1000);
  std::vector<float> values(1000, 1.0f);
  for (int i = 0; i < 20; ++i) {
    REQUIRE(context.Wait(context.Submit(registration, values.data(), values.data())) == RINGD_OK);
  }
  const std::vector<Submission> seen = ringd.submissions();
  for (const Submission& submission : seen) {
    CHECK(submission.source_offset == seen[0].source_offset);
    CHECK(submission.source_offset % 64 == 0);
  }
}

TEST_CASE("Staging: idle blocks are given up for other tensors before the arena counts as full") {
  FakeRingdSettings settings;
  settings.arena_bytes = 1 << 20;
  FakeRingd ringd(settings);
  TestContext context(ringd);
  std::vector<float> values(200'000, 1.0f);
  const ringd_registration one = context.RegisterFloats("one", 200'000);
  const ringd_registration two = context.RegisterFloats("two", 200'000);
  for (int i = 0; i < 3; ++i) {
    CHECK(context.Wait(context.Submit(one, values.data(), values.data())) == RINGD_OK);
    CHECK(context.Wait(context.Submit(two, values.data(), values.data())) == RINGD_OK);
  }
  CHECK(values[7] == 64.0f);
  // In flight it can't be given up.
  ringd.Hold();
  const ringd_operation held = context.Submit(one, values.data(), values.data());
  ringd_operation refused = 0;
  CHECK(ringd_submit(context, two, values.data(), values.data(), &refused) ==
        RINGD_RESOURCE_EXHAUSTED);
  CHECK_THAT(ringd_last_error(),
             Contains("'two'") && Contains("arena of 1 MiB is full") && Contains("arena_bytes"));
  ringd.Release();
  CHECK(context.Wait(held) == RINGD_OK);
  CHECK(context.Wait(context.Submit(two, values.data(), values.data())) == RINGD_OK);
}

TEST_CASE("Staging: a view of the arena that is not aligned to its elements is copied") {
  FakeRingd ringd;
  TestContext context(ringd);
  unsigned char* bytes = context.Allocate<unsigned char>(64);
  const float value = 1.5f;
  std::memcpy(bytes + 3, &value, sizeof(value));
  const ringd_registration registration = context.RegisterFloats("crooked", 1);
  REQUIRE(context.Wait(context.Submit(registration, bytes + 3, bytes + 3)) == RINGD_OK);
  float result = 0;
  std::memcpy(&result, bytes + 3, sizeof(result));
  CHECK(result == 3.0f);
  CHECK(ringd.submissions().at(0).source_offset % 4 == 0);
}

TEST_CASE("Arena: memory is shared with ringd, zero, and told apart from other memory") {
  FakeRingd ringd;
  TestContext context(ringd);
  float* data = context.Allocate<float>(1000);
  CHECK(reinterpret_cast<std::uintptr_t>(data) % 64 == 0);
  for (int i = 0; i < 1000; ++i) REQUIRE(data[i] == 0.0f);
  CHECK(ringd_arena_contains(context, data, 4000) == 1);
  CHECK(ringd_arena_contains(context, data, 1 << 30) == 0);
  float outside = 0;
  CHECK(ringd_arena_contains(context, &outside, 4) == 0);
  ringd_arena_free(context, data);
  void* address = nullptr;
  CHECK(ringd_arena_alloc(context, 1 << 30, &address) == RINGD_RESOURCE_EXHAUSTED);
  CHECK_THAT(ringd_last_error(), Contains("arena of 16 MiB") && Contains("RINGD_ARENA_BYTES"));
  ringd_arena_free(context, &outside);
  CHECK_THAT(ringd_last_error(), Contains("was not allocated"));
}

}  // namespace
}  // namespace ringd
