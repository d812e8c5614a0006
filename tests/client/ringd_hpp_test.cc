#include <catch2/catch.hpp>
#include <chrono>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "client/ringd.hpp"
#include "tests/client/fake_ringd.h"
#include "tests/client/test_context.h"

namespace ringd {
namespace {

static_assert(ElementTypeOf<float>() == ElementType::kFloat32);
static_assert(ElementTypeOf<double>() == ElementType::kFloat64);
static_assert(ElementTypeOf<bool>() == ElementType::kBool);
static_assert(ElementTypeOf<std::uint8_t>() == ElementType::kUint8);
static_assert(ElementTypeOf<std::int8_t>() == ElementType::kInt8);
static_assert(ElementTypeOf<std::uint16_t>() == ElementType::kUint16);
static_assert(ElementTypeOf<std::int16_t>() == ElementType::kInt16);
static_assert(ElementTypeOf<std::uint32_t>() == ElementType::kUint32);
static_assert(ElementTypeOf<std::int32_t>() == ElementType::kInt32);
static_assert(ElementTypeOf<std::uint64_t>() == ElementType::kUint64);
static_assert(ElementTypeOf<std::int64_t>() == ElementType::kInt64);

TEST_CASE("C++ layer: a gradient in the arena, from registration to result") {
  FakeRingd ringd;
  const ringd_options options = OptionsFor(ringd);
  Context context(&options);
  CHECK(context.place().size == 1);
  ArenaBuffer<float> gradient = context.Allocate<float>(10);
  CHECK(context.InArena(gradient.span()));
  std::iota(gradient.data(), gradient.data() + 10, 0.0f);
  const Registration registration = context.Register(AllReduce<float>("weight", {2, 5}));
  Operation operation = context.Submit(registration, gradient.span());
  CHECK(operation.pending());
  operation.Wait();
  CHECK_FALSE(operation.pending());
  CHECK(operation.Done());
  operation.Wait();
  for (std::size_t i = 0; i < 10; ++i) CHECK(gradient[i] == 2.0f * static_cast<float>(i));
}

TEST_CASE("C++ layer: ordinary vectors, source and destination apart, several at once") {
  FakeRingd ringd;
  const ringd_options options = OptionsFor(ringd);
  Context context(&options);
  const std::vector<float> source(100, 3.0f);
  std::vector<float> destination(100);
  CHECK_FALSE(context.InArena(std::span(source)));
  const std::vector<Tensor> tensors = {AllReduce<float>("a", {100}, Reduction::kAverage),
                                       Broadcast<std::int32_t>("b", {4}, 0)};
  const std::vector<Registration> registrations = context.Register(tensors);
  REQUIRE(registrations.size() == 2);
  context.Submit(registrations[0], std::span(source), std::span(destination)).Wait();
  CHECK(destination == std::vector<float>(100, 6.0f));
  std::vector<std::int32_t> weights = {1, 2, 3, 4};
  context.Submit(registrations[1], std::span(weights)).Wait();
  CHECK(weights == std::vector<std::int32_t>{1, 2, 3, 4});
  context.Barrier();
}

TEST_CASE(
    "C++ layer: many operations are waited for at once, and of failures the first is thrown") {
  FakeRingd ringd;
  const ringd_options options = OptionsFor(ringd);
  Context context(&options);
  const Registration registration = context.Register(AllReduce<float>("number", {1}));
  std::vector<float> values(50, 2.0F);
  const auto submit = [&] {
    std::vector<Operation> operations;
    for (float& value : values) {
      operations.push_back(context.Submit(registration, std::span(&value, 1)));
    }
    return operations;
  };
  std::vector<Operation> operations = submit();
  operations.front().Wait();
  WaitAll(operations);
  CHECK(values == std::vector<float>(50, 4.0F));
  for (const Operation& operation : operations) CHECK_FALSE(operation.pending());
  WaitAll(operations);
  WaitAll({});
  ringd.FailOperations(absl::AbortedError("rank 3 was killed"));
  operations = submit();
  CHECK_THROWS_WITH(WaitAll(operations), Catch::Contains("rank 3 was killed"));
  for (const Operation& operation : operations) CHECK_FALSE(operation.pending());
}

TEST_CASE("C++ layer: failures are thrown with code and words") {
  FakeRingd ringd;
  const ringd_options options = OptionsFor(ringd);
  Context context(&options);
  ringd.FailOperations(absl::AbortedError("rank 1 was killed"));
  float value = 1;
  const Registration registration = context.Register(AllReduce<float>("x", {1}));
  Operation operation = context.Submit(registration, std::span(&value, 1));
  try {
    operation.Wait();
    FAIL("the failure was not thrown");
  } catch (const Error& error) {
    CHECK(error.code() == RINGD_ABORTED);
    CHECK(std::string(error.code_name()) == "RINGD_ABORTED");
    CHECK(std::string(error.what()) == "rank 1 was killed");
  }
  CHECK_THROWS_AS(context.Allocate<double>(std::size_t{1} << 40), Error);
  CHECK_THROWS_AS(context.Register(AllReduce<float>("", {1})), Error);
  ringd_options nowhere = options;
  nowhere.socket = "/tmp/ringd-nowhere.sock";
  CHECK_THROWS_AS(Context(&nowhere), Error);
}

TEST_CASE("C++ layer: waiting for a while tells 'not yet' from the end") {
  FakeRingd ringd;
  const ringd_options options = OptionsFor(ringd);
  Context context(&options);
  ringd.Hold();
  float value = 1;
  const Registration registration = context.Register(AllReduce<float>("x", {1}));
  Operation operation = context.Submit(registration, std::span(&value, 1));
  CHECK_FALSE(operation.Done());
  CHECK_FALSE(operation.WaitFor(std::chrono::milliseconds(10)));
  CHECK(operation.pending());
  Operation moved = std::move(operation);
  CHECK_FALSE(operation.pending());  // NOLINT(bugprone-use-after-move): it is empty
  ringd.Release();
  CHECK(moved.WaitFor(std::chrono::seconds(10)));
  CHECK(value == 2);
}

TEST_CASE("C++ layer: an operation that goes out of scope is waited for") {
  FakeRingd ringd;
  const ringd_options options = OptionsFor(ringd);
  Context context(&options);
  ArenaBuffer<float> data = context.Allocate<float>(1);
  data[0] = 5;
  {
    const Operation operation =
        context.Submit(context.Register(AllReduce<float>("x", {1})), data.span());
  }
  CHECK(data[0] == 10);
}

}  // namespace
}  // namespace ringd
