// What a forked child may and may not do with its parent's context.
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include "client/ringd.h"
#include "tests/client/fake_ringd.h"
#include "tests/client/test_context.h"

namespace ringd {
namespace {

// The child's exit code; -1 if it did not exit by itself in time (it is killed then).
int ExitCodeOf(pid_t child) {
  int status = 0;
  const bool ended = Eventually([&] { return ::waitpid(child, &status, WNOHANG) == child; });
  if (!ended) {
    ::kill(child, SIGKILL);
    ::waitpid(child, &status, 0);
    return -1;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_CASE("Fork: every use in the child is refused in words, and harms nothing") {
  FakeRingd ringd;
  TestContext context(ringd);
  const ringd_registration registration = context.RegisterFloats("x", 1);
  float value = 1;
  const ringd_operation operation = context.Submit(registration, &value, &value);
  const pid_t child = ::fork();
  if (child == 0) {
    ringd_operation own = 0;
    std::int32_t done = 0;
    void* address = nullptr;
    ringd_place place{};
    place.struct_size = sizeof(place);
    const std::int64_t count = 1;
    const ringd_tensor tensor = TestContext::FloatTensor("y", &count);
    ringd_registration number = 0;
    if (ringd_submit(context, registration, &value, &value, &own) != RINGD_FAILED_PRECONDITION) {
      ::_exit(1);
    }
    if (std::strstr(ringd_last_error(), "fork") == nullptr) ::_exit(2);
    if (ringd_wait(context, operation, 0) != RINGD_FAILED_PRECONDITION) ::_exit(3);
    if (ringd_test(context, operation, &done) != RINGD_FAILED_PRECONDITION) ::_exit(4);
    if (ringd_arena_alloc(context, 64, &address) != RINGD_FAILED_PRECONDITION) ::_exit(5);
    if (ringd_get_place(context, &place) != RINGD_FAILED_PRECONDITION) ::_exit(6);
    if (ringd_register(context, &tensor, 1, &number) != RINGD_FAILED_PRECONDITION) ::_exit(7);
    ringd_close(context);
    ::_exit(0);
  }
  CHECK(ExitCodeOf(child) == 0);
  CHECK(ringd.live_sessions() == 1);
  CHECK(ringd.leave_calls() == 0);
  CHECK(context.Wait(operation) == RINGD_OK);
  CHECK(value == 2);
  CHECK(context.Wait(context.Submit(registration, &value, &value)) == RINGD_OK);
  CHECK(value == 4);
}

}  // namespace
}  // namespace ringd
