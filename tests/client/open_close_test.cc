// Opening and closing contexts: what is asked of ringd, and what goes wrong on the way.
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>

#include "client/ringd.h"
#include "proto/base/unix_socket.h"
#include "tests/client/fake_ringd.h"
#include "tests/client/test_context.h"

namespace ringd {
namespace {

using Catch::Matchers::Contains;

// Opening that must fail; gives the code, and the words in ringd_last_error().
ringd_status OpenError(const ringd_options& options) {
  ringd_context* context = nullptr;
  const ringd_status status = ringd_open(&options, &context);
  CHECK(context == nullptr);
  ringd_close(context);
  return status;
}

TEST_CASE("Context: opening joins with the given place and closing leaves") {
  FakeRingd ringd;
  ringd_options options = OptionsFor(ringd);
  options.rank = 3;
  options.size = 4;
  options.local_rank = 1;
  options.local_size = 2;
  options.rendezvous = "node-a:7117";
  options.secret = "s3cret";
  options.start_timeout_ms = 1500;
  options.operation_timeout_ms = 2500;
  options.fusion = "4KiB";
  options.weight = 3;
  {
    TestContext context(options);
    const SeenJoin join = ringd.last_join();
    CHECK(join.job_id == "test");
    CHECK(join.rank == 3);
    CHECK(join.size == 4);
    CHECK(join.local_rank == 1);
    CHECK(join.local_size == 2);
    CHECK(join.rendezvous == "node-a:7117");
    CHECK(join.secret == "s3cret");
    CHECK(join.start_timeout_ms == 1500);
    CHECK(join.operation_timeout_ms == 2500);
    CHECK(join.fusion == "4KiB");
    CHECK(join.weight == 3);

    ringd_place place{};
    place.struct_size = sizeof(place);
    REQUIRE(ringd_get_place(context, &place) == RINGD_OK);
    CHECK(place.rank == 3);
    CHECK(place.size == 4);
    CHECK(place.local_rank == 1);
    CHECK(place.local_size == 2);
    CHECK(place.node_count == 2);
    CHECK(place.cross_size == 2);
    CHECK(place.generation == 9);
    CHECK(place.homogeneous == 1);
    CHECK(std::string(place.node_name) == "fake-node");
    CHECK(std::string(place.daemon_version) == "1.2.3");
    CHECK(ringd.live_sessions() == 1);
    CHECK(ringd.leave_calls() == 0);
  }
  CHECK(ringd.leave_calls() == 1);
  CHECK(Eventually([&] { return ringd.live_sessions() == 0; }));
}

TEST_CASE(
    "Context: leaving and abandoning cancel what is in flight; the arena stays until closing") {
  FakeRingd ringd;
  TestContext context(ringd);
  const ringd_registration registration = context.RegisterFloats("x", 1);
  float* data = context.Allocate<float>(1);
  data[0] = 7;
  ringd.Hold();
  const ringd_operation operation = context.Submit(registration, data, data);
  ringd_status waited = RINGD_OK;
  std::thread waiter([&] { waited = ringd_wait(context, operation, kPatienceMs); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const bool leaves = GENERATE(true, false);
  CHECK((leaves ? ringd_leave(context) : ringd_abandon(context)) == RINGD_OK);
  waiter.join();
  CHECK(waited == RINGD_CANCELLED);
  ringd_operation later = 0;
  CHECK(ringd_submit(context, registration, data, data, &later) == RINGD_CANCELLED);
  CHECK(data[0] == 7);
  CHECK(ringd.leave_calls() == (leaves ? 1 : 0));
  // ringd sees the end at once, also of a rank that only abandons.
  CHECK(Eventually([&] { return ringd.live_sessions() == 0; }));
  // Once is enough.
  CHECK(ringd_leave(context) == RINGD_OK);
  CHECK(ringd.leave_calls() == (leaves ? 1 : 0));
}

TEST_CASE("Context: who leaves second waits until the first has left") {
  FakeRingdSettings settings;
  settings.leave_takes = std::chrono::milliseconds(300);
  FakeRingd ringd(settings);
  TestContext context(ringd);
  const ringd_registration registration = context.RegisterFloats("x", 1);
  float* data = context.Allocate<float>(1);
  std::thread first([&] { ringd_leave(context); });
  CHECK(Eventually([&] { return ringd.leave_calls() == 1; }));
  CHECK((GENERATE(true, false) ? ringd_leave(context) : ringd_abandon(context)) == RINGD_OK);
  ringd_operation later = 0;
  CHECK(ringd_submit(context, registration, data, data, &later) == RINGD_CANCELLED);
  first.join();
  CHECK(ringd.leave_calls() == 1);
}

TEST_CASE("Context: why it abandons its job is told to ringd, as it can be told") {
  FakeRingd ringd;
  TestContext context(ringd);
  const std::string why = "ended: a\nb\xff" + std::string(1000, 'x');
  CHECK(ringd_abandon_because(context, why.c_str()) == RINGD_OK);
  CHECK(ringd.leave_calls() == 1);
  CHECK(ringd.last_failure() == "ended: a b?" + std::string(501, 'x'));
  CHECK(Eventually([&] { return ringd.live_sessions() == 0; }));
}

TEST_CASE("Context: abandoned without a reason it only goes") {
  FakeRingd ringd;
  TestContext context(ringd);
  const char* const why = GENERATE(static_cast<const char*>(nullptr), "");
  CHECK(ringd_abandon_because(context, why) == RINGD_OK);
  CHECK(Eventually([&] { return ringd.live_sessions() == 0; }));
  CHECK(ringd.leave_calls() == 0);
}

TEST_CASE("Context: can be opened and closed any number of times, and twice at once") {
  FakeRingd ringd;
  for (int i = 0; i < 5; ++i) {
    TestContext one(ringd);
    TestContext two(ringd);
    float value = 21;
    REQUIRE(one.Wait(one.Submit(one.RegisterFloats("x", 1), &value, &value)) == RINGD_OK);
    CHECK(value == 42);
  }
  CHECK(ringd.join_calls() == 10);
}

TEST_CASE("Context: without a ringd the error says where it was looked for and what to do") {
  ringd_options options{};
  options.struct_size = sizeof(options);
  options.socket = "/tmp/ringd-nowhere.sock";
  options.rank = -1;
  CHECK(OpenError(options) == RINGD_NOT_FOUND);
  CHECK_THAT(ringd_last_error(), Contains("no ringd at /tmp/ringd-nowhere.sock") &&
                                     Contains("RINGD_SOCKET") && Contains("ringctl run"));
}

TEST_CASE("Context: a socket file that nobody listens on is an error with advice") {
  std::string path;
  {
    FakeRingd ringd;
    path = ringd.socket() + "2";
    const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, path.c_str());
    REQUIRE(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    ringd_options options = OptionsFor(ringd);
    options.socket = path.c_str();
    CHECK(OpenError(options) == RINGD_UNAVAILABLE);
    CHECK_THAT(ringd_last_error(), Contains("no ringd listens on " + path));
    ::unlink(path.c_str());
  }
}

TEST_CASE("Context: another version of the attach protocol is refused with both numbers") {
  FakeRingdSettings settings;
  settings.attach_version = 77;
  FakeRingd ringd(settings);
  CHECK(OpenError(OptionsFor(ringd)) == RINGD_FAILED_PRECONDITION);
  CHECK_THAT(ringd_last_error(), Contains("version 77") && Contains("version 1"));
  CHECK(ringd.join_calls() == 0);
}

TEST_CASE("Context: a refused attach gives ringd's code and words") {
  FakeRingdSettings settings;
  settings.refusal = absl::PermissionDeniedError("user 1234 is not admitted");
  FakeRingd ringd(settings);
  CHECK(OpenError(OptionsFor(ringd)) == RINGD_PERMISSION_DENIED);
  CHECK_THAT(ringd_last_error(), Contains("user 1234 is not admitted") && Contains(ringd.socket()));
}

TEST_CASE("Context: a failed join gives ringd's code and words and leaves no session behind") {
  FakeRingdSettings settings;
  settings.join_failure = absl::DeadlineExceededError("ranks 2 and 3 are missing");
  FakeRingd ringd(settings);
  CHECK(OpenError(OptionsFor(ringd)) == RINGD_DEADLINE_EXCEEDED);
  CHECK(std::string(ringd_last_error()) == "ranks 2 and 3 are missing");
  CHECK(Eventually([&] { return ringd.live_sessions() == 0; }));
}

TEST_CASE("Context: ringd's death while the ranks gather ends the join at once") {
  FakeRingdSettings settings;
  settings.join_hangs = true;
  FakeRingd ringd(settings);
  std::thread killer([&] {
    Eventually([&] { return ringd.join_calls() == 1; });
    ringd.Die();
  });
  const auto start = std::chrono::steady_clock::now();
  CHECK(OpenError(OptionsFor(ringd)) == RINGD_UNAVAILABLE);
  CHECK_THAT(ringd_last_error(), Contains("ringd (pid ") && Contains("has gone"));
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::milliseconds(kPatienceMs));
  killer.join();
}

TEST_CASE("Context: an interrupt ends the wait for other ranks and leaves no session behind") {
  FakeRingdSettings settings;
  settings.join_hangs = true;
  FakeRingd ringd(settings);
  ringd_options options = OptionsFor(ringd);
  int asked = 0;
  options.user_data = &asked;
  options.is_interrupted = [](void* count) {
    return static_cast<std::int32_t>(++*static_cast<int*>(count) == 3);
  };
  const auto start = std::chrono::steady_clock::now();
  CHECK(OpenError(options) == RINGD_CANCELLED);
  CHECK_THAT(ringd_last_error(), Contains("interrupted"));
  const auto waited = std::chrono::steady_clock::now() - start;
  CHECK(waited > std::chrono::milliseconds(200));
  CHECK(waited < std::chrono::milliseconds(kPatienceMs));
  CHECK(asked == 3);
  CHECK(Eventually([&] { return ringd.live_sessions() == 0; }));
}

volatile std::sig_atomic_t signalled = 0;

TEST_CASE("Context: the wait for other ranks takes the caller's signals") {
  FakeRingdSettings settings;
  settings.join_hangs = true;
  FakeRingd ringd(settings);
  ringd_options options = OptionsFor(ringd);
  options.start_timeout_ms = 1;
  options.is_interrupted = [](void*) { return static_cast<std::int32_t>(signalled); };
  signalled = 0;
  struct sigaction action {};
  struct sigaction before {};
  action.sa_handler = [](int) { signalled = 1; };
  REQUIRE(::sigaction(SIGUSR1, &action, &before) == 0);
  const pthread_t caller = ::pthread_self();
  std::thread sender([&] {
    Eventually([&] { return ringd.join_calls() == 1; });
    ::pthread_kill(caller, SIGUSR1);
  });
  CHECK(OpenError(options) == RINGD_CANCELLED);
  sender.join();
  ::sigaction(SIGUSR1, &before, nullptr);
  CHECK(signalled == 1);
}

TEST_CASE("Context: who may be interrupted, and is not, joins") {
  FakeRingd ringd;
  ringd_options options = OptionsFor(ringd);
  options.is_interrupted = [](void*) { return std::int32_t{0}; };
  const TestContext context(options);
  CHECK(ringd.last_join().job_id == "test");
}

TEST_CASE("Context: what listens and is no ringd is an error, not a hang") {
  FakeRingd ringd;
  const std::string path = ringd.socket() + "3";
  auto listener = ListenUnix(path, 0600);
  REQUIRE(listener.ok());
  SECTION("it closes the connection") {
    std::thread server([&] {
      pollfd entry{listener->get(), POLLIN, 0};
      ::poll(&entry, 1, static_cast<int>(kPatienceMs));
      const UniqueFd connection(::accept(listener->get(), nullptr, nullptr));
    });
    ringd_options options = OptionsFor(ringd);
    options.socket = path.c_str();
    CHECK(OpenError(options) == RINGD_UNAVAILABLE);
    CHECK_THAT(ringd_last_error(), Contains(path));
    server.join();
  }
  SECTION("it answers something else") {
    std::thread server([&] {
      pollfd entry{listener->get(), POLLIN, 0};
      ::poll(&entry, 1, static_cast<int>(kPatienceMs));
      const UniqueFd connection(::accept(listener->get(), nullptr, nullptr));
      const std::string nonsense(sizeof(AttachReply), 'x');
      (void)!::write(connection.get(), nonsense.data(), nonsense.size());
      char rest[64];
      while (::read(connection.get(), rest, sizeof(rest)) > 0) {
      }
    });
    ringd_options options = OptionsFor(ringd);
    options.socket = path.c_str();
    CHECK(OpenError(options) == RINGD_FAILED_PRECONDITION);
    CHECK_THAT(ringd_last_error(), Contains("no ringd"));
    server.join();
  }
  ::unlink(path.c_str());
}

TEST_CASE("Context: places that contradict each other are refused before ringd is asked") {
  FakeRingd ringd;
  ringd_options options = OptionsFor(ringd);
  options.rank = 4;
  options.size = 4;
  options.local_size = 4;
  CHECK(OpenError(options) == RINGD_INVALID_ARGUMENT);
  CHECK_THAT(ringd_last_error(), Contains("rank 4 of 4"));
  options = OptionsFor(ringd);
  options.struct_size = 8;
  CHECK(OpenError(options) == RINGD_INVALID_ARGUMENT);
  CHECK_THAT(ringd_last_error(), Contains("struct_size"));
  CHECK(ringd.join_calls() == 0);
}

TEST_CASE("Context: a place of another version's size is filled as far as both know it") {
  FakeRingd ringd;
  const TestContext context(ringd);
  struct Later {
    ringd_place place;
    std::int64_t addition;
  };
  Later later{};
  later.place.struct_size = sizeof(later);
  later.addition = 5;
  REQUIRE(ringd_get_place(context, &later.place) == RINGD_OK);
  CHECK(later.place.struct_size == sizeof(later));
  CHECK(later.place.size == 1);
  CHECK(later.addition == 0);
  later.place.struct_size = 8;
  CHECK(ringd_get_place(context, &later.place) == RINGD_INVALID_ARGUMENT);
  CHECK_THAT(ringd_last_error(), Contains("ringd_place.struct_size is 8"));
}

TEST_CASE("C interface: null pointers are errors, and closing null is allowed") {
  CHECK(ringd_open(nullptr, nullptr) == RINGD_INVALID_ARGUMENT);
  CHECK(ringd_get_place(nullptr, nullptr) == RINGD_INVALID_ARGUMENT);
  ringd_operation operation = 0;
  std::int32_t done = 0;
  CHECK(ringd_submit(nullptr, 1, nullptr, nullptr, &operation) == RINGD_INVALID_ARGUMENT);
  CHECK(ringd_test(nullptr, 1, &done) == RINGD_INVALID_ARGUMENT);
  CHECK(ringd_wait(nullptr, 1, 0) == RINGD_INVALID_ARGUMENT);
  CHECK_THAT(ringd_last_error(), Contains("context is NULL"));
  CHECK(ringd_arena_contains(nullptr, &done, 4) == 0);
  ringd_arena_free(nullptr, nullptr);
  ringd_close(nullptr);
}

TEST_CASE("C interface: the last error belongs to its thread") {
  CHECK(ringd_open(nullptr, nullptr) == RINGD_INVALID_ARGUMENT);
  std::string other = "unset";
  std::thread([&] { other = ringd_last_error(); }).join();
  CHECK(other.empty());
  CHECK(std::string(ringd_last_error()) == "context is NULL");
}

}  // namespace
}  // namespace ringd
