#include "daemon/engine/pending_call.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "daemon/engine/call_thread.h"

namespace ringd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr auto kNever = std::chrono::hours(1);

absl::Status Late() { return absl::DeadlineExceededError("late"); }

struct Ended {
  std::atomic<int> count{0};
  std::promise<std::pair<absl::Status, int>> first;

  Answer<int> Take() {
    return [this](const absl::Status& status, int reply) {
      if (++count == 1) first.set_value({status, reply});
    };
  }
  std::pair<absl::Status, int> Await() {
    auto future = first.get_future();
    REQUIRE(future.wait_for(seconds(20)) == std::future_status::ready);
    return future.get();
  }
};

TEST_CASE("PendingCall: the reply is made on the call thread, once, for the first word only") {
  Ended ended;
  std::atomic<int> made{0};
  std::thread::id maker;
  {
    CallThread thread;
    const auto call = BeginCall<int>(thread, ended.Take(), kNever, Late);
    CHECK(call->Finish(absl::OkStatus(), [&] {
      ++made;
      maker = std::this_thread::get_id();
      return 42;
    }));
    CHECK_FALSE(call->Finish(absl::OkStatus(), [&] {
      ++made;
      return 43;
    }));
    CHECK_FALSE(call->Finish(absl::CancelledError("gone")));
  }
  const auto [status, reply] = ended.Await();
  CHECK(status.ok());
  CHECK(reply == 42);
  CHECK(made == 1);
  CHECK(ended.count == 1);
  CHECK(maker != std::this_thread::get_id());
}

TEST_CASE("PendingCall: a call that nobody ends is ended by its deadline") {
  Ended ended;
  CallThread thread;
  BeginCall<int>(thread, ended.Take(), milliseconds(20),
                 [] { return absl::DeadlineExceededError("ringd's engine does not answer"); });
  CHECK(ended.Await().first.message() == "ringd's engine does not answer");
}

TEST_CASE("PendingCall: a deadline waits on as long as it is told to") {
  Ended ended;
  CallThread thread;
  std::atomic<int> judged{0};
  BeginCall<int>(thread, ended.Take(), milliseconds(5),
                 [&] { return ++judged < 4 ? absl::OkStatus() : Late(); });
  CHECK(ended.Await().first.message() == "late");
  CHECK(judged == 4);
}

TEST_CASE("PendingCall: what a late word brings is freed on the call thread, not by who says it") {
  std::thread::id freed_on;
  {
    Ended ended;
    CallThread thread;  // goes first: it may still be answering
    const auto call = BeginCall<int>(thread, ended.Take(), kNever, Late);
    call->Finish(absl::CancelledError("gone"));
    std::shared_ptr<int> large(new int(1), [&](int* value) {
      freed_on = std::this_thread::get_id();
      delete value;
    });
    call->Finish(absl::OkStatus(), [large = std::move(large)] { return *large; });
  }
  CHECK(freed_on != std::thread::id());
  CHECK(freed_on != std::this_thread::get_id());
}

TEST_CASE("CallThread: timers run in the order of their times, cancelled ones never") {
  std::string order;
  std::promise<void> last;
  CallThread thread;
  const Clock::time_point now = Clock::now();
  thread.RunAt(now + milliseconds(60), [&] { last.set_value(); });
  thread.RunAt(now + milliseconds(40), [&] { order += "b"; });
  const auto cancelled = thread.RunAt(now + milliseconds(30), [&] { order += "x"; });
  thread.RunAt(now + milliseconds(20), [&] { order += "a"; });
  thread.Cancel(cancelled);
  REQUIRE(last.get_future().wait_for(seconds(20)) == std::future_status::ready);
  CHECK(order == "ab");
}

TEST_CASE(
    "CallThread: a timer that is due first wakes a thread that sleeps, also for a later one") {
  const bool sleeps_for_another = GENERATE(false, true);
  std::promise<void> awake, ran;
  CallThread thread;
  if (sleeps_for_another) thread.RunAt(Clock::now() + kNever, [] {});
  thread.Post([&] { awake.set_value(); });
  awake.get_future().wait();
  std::this_thread::sleep_for(milliseconds(100));  // it has gone to sleep again
  thread.RunAt(Clock::now() + milliseconds(10), [&] { ran.set_value(); });
  // It would find the timer by itself after a minute.
  CHECK(ran.get_future().wait_for(seconds(20)) == std::future_status::ready);
}

TEST_CASE("CallThread: a flow with many tasks keeps another one waiting for one of them") {
  std::string order;
  {
    std::promise<void> begun, all_posted;
    CallThread thread;
    const auto hold = [&] {
      begun.set_value();
      all_posted.get_future().wait_for(seconds(20));
    };
    thread.Post(hold, 7);
    REQUIRE(begun.get_future().wait_for(seconds(20)) == std::future_status::ready);
    for (int i = 0; i < 100; ++i) thread.Post([&] { order += 'a'; }, 7);
    thread.Post([&] { order += 'b'; }, 9);
    thread.Post([&] { order += 'c'; }, 3);
    thread.Post([&] { order += 'C'; }, 3);
    // What a call's end is posted as.
    const auto call = std::make_shared<PendingCall<int>>(
        thread, [&](const absl::Status&, int) { order += 'd'; }, 5);
    call->Finish(absl::CancelledError("gone"));
    all_posted.set_value();
  }
  // Each in its own order.
  CHECK(order.substr(0, 7) == "bcdaCaa");
  CHECK(order.size() == 104);
}

TEST_CASE("CallThread: timers come between the tasks of those who post without end") {
  std::atomic<bool> ran{false};
  std::promise<void> last;
  CallThread thread;
  std::function<void()> again = [&] {
    if (ran) return last.set_value();
    thread.Post(again);
  };
  thread.Post(again);
  thread.RunAt(Clock::now() + milliseconds(5), [&] { ran = true; });
  CHECK(last.get_future().wait_for(seconds(20)) == std::future_status::ready);
}

TEST_CASE("CallThread: what was posted runs even if the thread is about to end; timers do not") {
  int ran = 0;
  bool timer_ran = false;
  {
    CallThread thread;
    thread.RunAt(Clock::now() + kNever, [&] { timer_ran = true; });
    for (int i = 0; i < 1000; ++i) thread.Post([&] { ++ran; });
  }
  CHECK(ran == 1000);
  CHECK_FALSE(timer_ran);
}

}  // namespace
}  // namespace ringd
