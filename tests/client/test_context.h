// A context against a FakeRingd, and short ways to use one.
#ifndef RINGD_TESTS_CLIENT_TEST_CONTEXT_H_
#define RINGD_TESTS_CLIENT_TEST_CONTEXT_H_

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "client/ringd.h"
#include "tests/client/fake_ringd.h"

namespace ringd {

// Long enough for a busy machine, short enough that a hang is a failure.
inline constexpr std::int64_t kPatienceMs = 10'000;

inline ringd_options OptionsFor(const FakeRingd& ringd) {
  ringd_options options{};
  options.struct_size = sizeof(options);
  options.socket = ringd.socket().c_str();
  options.job_id = "test";
  options.rank = 0;
  options.size = 1;
  options.local_rank = 0;
  options.local_size = 1;
  return options;
}

// A communicator of the one rank of such a job.
inline ringd_communicator_options CommunicatorOfOne(const char* name) {
  static const std::int32_t self = 0;
  ringd_communicator_options options{};
  options.struct_size = sizeof(options);
  options.name = name;
  options.ranks = &self;
  options.count = 1;
  return options;
}

// Closes when it goes.
class TestContext {
 public:
  explicit TestContext(const FakeRingd& ringd) : TestContext(OptionsFor(ringd)) {}
  explicit TestContext(const ringd_options& options) {
    const ringd_status status = ringd_open(&options, &context_);
    INFO(ringd_last_error());
    REQUIRE(status == RINGD_OK);
  }
  ~TestContext() { ringd_close(context_); }
  TestContext(const TestContext&) = delete;
  TestContext& operator=(const TestContext&) = delete;

  // Implicit, so that tests read like a caller's code.
  operator ringd_context*() const { return context_; }  // NOLINT(google-explicit-constructor)

  template <typename T>
  T* Allocate(std::size_t count) {
    void* address = nullptr;
    REQUIRE(ringd_arena_alloc(context_, count * sizeof(T), &address) == RINGD_OK);
    return static_cast<T*>(address);
  }

  ringd_registration Register(const ringd_tensor& tensor) {
    ringd_registration registration = 0;
    const ringd_status status = ringd_register(context_, &tensor, 1, &registration);
    INFO(ringd_last_error());
    REQUIRE(status == RINGD_OK);
    return registration;
  }

  // A sum of float32.
  ringd_registration RegisterFloats(const char* name, std::int64_t count) {
    return Register(FloatTensor(name, &count));
  }

  static ringd_tensor FloatTensor(const char* name, const std::int64_t* count) {
    ringd_tensor tensor{};
    tensor.struct_size = sizeof(tensor);
    tensor.name = name;
    tensor.kind = RINGD_ALLREDUCE;
    tensor.data_type = RINGD_FLOAT32;
    tensor.op = RINGD_SUM;
    tensor.dimensions = 1;
    tensor.shape = count;
    return tensor;
  }

  ringd_operation Submit(ringd_registration registration, const void* source, void* destination) {
    ringd_operation operation = 0;
    const ringd_status status =
        ringd_submit(context_, registration, source, destination, &operation);
    INFO(ringd_last_error());
    REQUIRE(status == RINGD_OK);
    return operation;
  }

  ringd_status Wait(ringd_operation operation) {
    return ringd_wait(context_, operation, kPatienceMs);
  }

 private:
  ringd_context* context_ = nullptr;
};

// Looks every millisecond until `condition` holds. False if it does not within the test's patience.
template <typename Condition>
bool Eventually(Condition condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatienceMs);
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace ringd

#endif  // RINGD_TESTS_CLIENT_TEST_CONTEXT_H_
